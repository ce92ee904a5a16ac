"""Pydantic's errors as lines that name the key and the fix."""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Iterator, Mapping
from types import UnionType
from typing import Annotated, Any, TypeGuard, TypeVar, Union, get_args, get_origin

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from g2d.settings import MistakeInKeyError, Section

AnySection = TypeVar("AnySection", bound=Section)
Path = tuple[str | int, ...]  # keys and positions in lists
DISCRIMINATORS = ("source", "regime", "reward")  # select the type of a section


def changed(where: str, common: AnySection, own: Mapping[str, object]) -> AnySection:
    """Copy a section with other values for some keys, `changed` in the validators' context.

    Raises a ValueError with a line per mistake, each starting with `where`.
    """
    values = common.model_dump() | dict(own)
    try:
        return type(common).model_validate(values, context={"changed": own.keys()})
    except ValidationError as error:
        lines = messages(error, values, type(common))
        raise ValueError("\n".join(f"{where}.{line}" for line in lines)) from None


def messages(error: ValidationError, values: object, root: type[Section]) -> list[str]:
    """Return one line per mistake, starting with its key."""
    # pydantic reports an error for each type of a union. Errors at one path of a union are a group.
    groups: dict[tuple[Path, int | None], list[ErrorDetails]] = {}
    for number, item in enumerate(error.errors()):
        path, of_a_union = _written_path(item, values)
        group = (path, None) if of_a_union else (path, number)
        groups.setdefault(group, []).append(item)
    paths = [path for path, _ in groups]
    lines = []
    for (path, single), items in groups.items():
        if single is None and any(other != path and other[: len(path)] == path for other in paths):
            continue  # there is a more specific one
        sentences = [_sentence(item, root) for item in items]
        mistake = " or ".join(dict.fromkeys(sentences))
        where = ".".join(str(part) for part in (*path, *_key_within(items[0])))
        for line in mistake.splitlines():
            lines.append(f"{where}: {line}" if where else line)
    return lines


def _key_within(item: ErrorDetails) -> list[str]:
    """Return the key within a section that an error of the whole section is about, if there is one."""
    error = item.get("ctx", {}).get("error")
    if isinstance(error, MistakeInKeyError):
        return [error.name]
    if item["type"].startswith("union_tag"):
        return [item["ctx"]["discriminator"].strip("'")]
    return []


A_LINE = 300  # longest list of keys in a message
OF_NAME = "[key]"  # last part of pydantic's place of a wrong name in a mapping


def _sentence(item: ErrorDetails, root: type[Section]) -> str:
    if item["type"] == "extra_forbidden":
        keys = _known_keys(item["loc"][:-1], root)
        close = difflib.get_close_matches(str(item["loc"][-1]), keys, n=1)
        if close:
            return f"unknown key; did you mean {close[0]}?"
        listed = ", ".join(keys)
        if len(listed) < A_LINE:
            return f"unknown key; known keys here: {listed}"
        return "unknown key; config/README.md lists the keys of this section"
    if item["type"] in ("missing", "union_tag_not_found"):
        return "missing; add this key"
    if item["type"] == "value_error":
        return str(item["ctx"]["error"])
    if item["type"] == "union_tag_invalid":
        return f"{item['ctx']['tag']!r} is unknown; use {item['ctx']['expected_tags']}"
    if item["type"] == "model_type":
        names = ", ".join(_known_keys(item["loc"], root)[:3])
        return f"expected a section with keys such as {names}, not {reprlib.repr(item['input'])}"
    if item["loc"][-1:] == (OF_NAME,) and isinstance(item["input"], bool):
        return f"{item['input']} is no name: YAML reads on, off, yes and no as true or false; put it in quotes"
    return f"{item['msg'][0].lower()}{item['msg'][1:]}, not {reprlib.repr(item['input'])}"


def _written_path(item: ErrorDetails, values: Any) -> tuple[Path, bool]:
    """Return an error's place without pydantic's labels of types, and whether one of these is a type of a union."""
    path: list[str | int] = []
    of_a_union = False
    for position, part in enumerate(item["loc"]):
        is_last_missing = item["type"] == "missing" and position == len(item["loc"]) - 1
        if _is_in(part, values):
            values = values[part]
            path.append(part)
        elif is_last_missing:
            path.append(part)
        else:
            is_tag = isinstance(values, Mapping) and part in [values.get(name) for name in DISCRIMINATORS]
            if not is_tag and part != OF_NAME:
                of_a_union = True
    if item["loc"][-1:] == (OF_NAME,) and isinstance(item["input"], bool):
        path.pop()  # pydantic has 1 for True
    return tuple(path), of_a_union


def _is_in(part: str | int, values: object) -> bool:
    if isinstance(values, Mapping):
        return part in values
    if isinstance(values, (list, tuple)):
        return part in range(len(values))
    return False


def _known_keys(path: Path, root: type[Section]) -> list[str]:
    kinds: list[object] = [root]
    for part in path:
        inner: list[object] = []
        for kind in kinds:
            inner += _inside(kind, part)
        kinds = inner
    names: set[str] = set()
    for kind in kinds:
        if _is_section(kind):
            names.update(kind.model_fields)
    return sorted(names)


def _inside(kind: object, part: str | int) -> Iterator[object]:
    """Yield the types of a value at one step of a path."""
    if _is_section(kind):
        if part in kind.model_fields:
            yield from _one_of(kind.model_fields[part].annotation)
        elif any(part in get_args(field.annotation) for field in kind.model_fields.values()):
            yield kind  # the label is a value of the discriminator
    elif get_origin(kind) in (dict, list, tuple):
        for item in get_args(kind):
            yield from _one_of(item)


def _one_of(annotation: object) -> Iterator[object]:
    """Yield the members of an annotation that is a union, else the annotation itself."""
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from _one_of(get_args(annotation)[0])
    elif origin in (Union, UnionType):
        for member in get_args(annotation):
            yield from _one_of(member)
    else:
        yield annotation


def _is_section(kind: object) -> TypeGuard[type[Section]]:
    return isinstance(kind, type) and issubclass(kind, Section)


def section_types(annotation: object) -> list[type[Section]]:
    """Return the sections in an annotation, also inside lists and dictionaries."""
    sections: list[type[Section]] = []
    for kind in _one_of(annotation):
        for inner in get_args(kind) or [kind]:
            sections += [member for member in _one_of(inner) if _is_section(member)]
    return sections
