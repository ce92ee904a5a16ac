"""Pydantic's errors as lines that name the key and the fix."""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Iterator, Mapping
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import ValidationError

from g2d.settings import MistakeInKeyError, Section, is_list
from g2d.settings.gone import gone_sentence

AnySection = TypeVar("AnySection", bound=Section)

DISCRIMINATORS = ("source", "regime", "reward")  # select the type of a section


def changed(where: str, common: AnySection, own: Mapping[str, Any]) -> AnySection:
    """Copy a section with other values for some keys, `changed` in the validators' context.

    Raises a ValueError with a line per mistake, each starting with `where`.
    """
    values = common.model_dump() | dict(own)
    try:
        return type(common).model_validate(values, context={"changed": own.keys()})
    except ValidationError as error:
        lines = messages(error, values, type(common), where)
        raise ValueError("\n".join(f"{where}.{line}" for line in lines)) from None


def messages(error: ValidationError, values: Any, root: type[Section], section: str = "") -> list[str]:
    """Return one line per mistake, starting with its key.

    Args:
        section: path of the validated section in the configuration, to recognise keys of earlier versions.
    """
    items_by_path: dict[tuple[tuple[Any, ...], int | None], list[dict[str, Any]]] = {}
    for number, item in enumerate(error.errors()):
        path, of_a_union = _written_path(item, values)
        items_by_path.setdefault((path, None if of_a_union else number), []).append(dict(item))
    lines = []
    for (path, alone), items in items_by_path.items():
        # pydantic reports an error for each type of a union: join them, or keep the most specific ones.
        if alone is None and any(other != path and other[: len(path)] == path for other, _ in items_by_path):
            continue
        where = ".".join(map(str, (*path, *_key_within(items[0]))))
        sentences = _gone(section, path, items[0]) or " or ".join(
            dict.fromkeys(_sentence(item, root) for item in items)
        )
        lines += [f"{where}: {sentence}" if where else sentence for sentence in sentences.splitlines()]
    return lines


def _key_within(item: Mapping[str, Any]) -> tuple[str, ...]:
    error = item.get("ctx", {}).get("error")
    if isinstance(error, MistakeInKeyError):
        return (error.name,)
    return (item["ctx"]["discriminator"].strip("'"),) if item["type"].startswith("union_tag") else ()


def _gone(section: str, path: tuple[Any, ...], item: Mapping[str, Any]) -> str | None:
    names = [str(part) for part in path if not isinstance(part, int)]
    return gone_sentence(".".join([section, *names] if section else names), item["input"])


A_LINE = 300  # longest list of keys in a message


def _sentence(item: Mapping[str, Any], root: type[Section]) -> str:
    if item["type"] == "extra_forbidden":
        keys = _known_keys(item["loc"][:-1], root)
        close = difflib.get_close_matches(str(item["loc"][-1]), keys, n=1)
        listed = ", ".join(keys)
        short = len(listed) < A_LINE
        choice = f"known keys here: {listed}" if short else "config/README.md lists the keys of this section"
        return f"unknown key; {f'did you mean {close[0]}?' if close else choice}"
    if item["type"] in ("missing", "union_tag_not_found"):
        return "missing; add this key"
    if item["type"] == "value_error":
        return str(item["ctx"]["error"])
    if item["type"] == "union_tag_invalid":
        return f"{item['ctx']['tag']!r} is unknown; use {item['ctx']['expected_tags']}"
    return f"{item['msg'][0].lower()}{item['msg'][1:]}, not {reprlib.repr(item['input'])}"


def _written_path(item: Mapping[str, Any], values: Any) -> tuple[tuple[Any, ...], bool]:
    path: list[Any] = []
    of_a_union = False
    for position, part in enumerate(item["loc"]):
        is_last_missing = item["type"] == "missing" and position == len(item["loc"]) - 1
        if part in (values if isinstance(values, Mapping) else range(len(values)) if is_list(values) else ()):
            values = values[part]
        elif not is_last_missing:
            is_tag = isinstance(values, Mapping) and part in (values.get(name) for name in DISCRIMINATORS)
            of_a_union = of_a_union or not (is_tag or part == "[key]")
            continue
        path.append(part)
    return tuple(path), of_a_union


def _known_keys(path: tuple[Any, ...], root: type[Section]) -> list[str]:
    kinds: list[Any] = [root]
    for part in path:
        kinds = [inner for kind in kinds for inner in _inside(kind, part)]
    return sorted({name for kind in kinds if _is_section(kind) for name in kind.model_fields})


def _inside(kind: Any, part: Any) -> Iterator[Any]:
    if _is_section(kind):
        if part in kind.model_fields:
            yield from _one_of(kind.model_fields[part].annotation)
        elif any(part in get_args(field.annotation) for field in kind.model_fields.values()):
            yield kind  # the label is a value of the discriminator
    elif get_origin(kind) in (dict, list, tuple):
        for item in get_args(kind):
            yield from _one_of(item)


def _one_of(annotation: Any) -> Iterator[Any]:
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from _one_of(get_args(annotation)[0])
    elif origin in (Union, UnionType):
        for member in get_args(annotation):
            yield from _one_of(member)
    else:
        yield annotation


def _is_section(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Section)


def section_types(annotation: Any) -> list[type[Section]]:
    kinds = [inner for kind in _one_of(annotation) for inner in (get_args(kind) or [kind])]
    return [kind for inner in kinds for kind in _one_of(inner) if _is_section(kind)]
