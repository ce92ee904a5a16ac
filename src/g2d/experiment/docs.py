"""Generate `config/schema.json` and `config/README.md` from the configuration classes.

g2d config docs            write both
g2d config check FILE ...  validate a configuration, with files that are merged over it
"""

from __future__ import annotations

import argparse
import json
import sys
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from g2d.experiment.config import Config, read_sources
from g2d.experiment.config_file import read_files
from g2d.experiment.requirements import require_files, require_windows
from g2d.jobs.files import read_text, write_text
from g2d.plain import say
from g2d.settings import ConfigError, Section
from g2d.settings.mistakes import DISCRIMINATORS, section_types

INTRODUCTION = Path(__file__).with_name("configuration.md")

Row = tuple[str, ...]  # key, type, default, the paper's value, meaning


def schema() -> str:
    return json.dumps(Config.model_json_schema(), indent=2) + "\n"


def readme() -> str:
    headings: dict[type[Section], list[str]] = {}
    for section, place in places(Config):
        headings.setdefault(section, []).append(place)
    pages, first, shown = [read_text(INTRODUCTION)], dict[Row, str](), list[list[str]]()
    for section, paths in headings.items():
        same = paths[2:] and paths in shown
        shown.append(paths)
        heading, tag = _heading(section, paths[:1] if same else paths)
        cells = [_cells(name, field) for name, field in _fields(section) if name != tag]
        sections = [row[0] for row in cells if not row[2]]
        rows = [row for row in cells if row[2]]
        new = [row for row in rows if row not in first]
        doc = (section.__doc__ or "").strip().splitlines()[0]
        below = [f"Sections: {', '.join(sections)}."] if sections else []
        pages.append("\n\n".join([f"## {heading}", doc, *_table(new), *_references(rows, first), *below]) + "\n")
        without_paper: list[Row] = [(*row[:3], "", row[4]) for row in new]
        first = dict.fromkeys([*new, *without_paper], _heading(section, paths[:1])[0]) | first
    return "\n".join(pages)


def _table(rows: list[Row]) -> Iterator[str]:
    header: Row = ("key", "type", "default", "paper", "meaning")
    columns = [i for i, name in enumerate(header) if name != "paper" or any(row[i] for row in rows)]
    if rows:
        lines = ["| " + " | ".join(row[i] for i in columns) + " |" for row in (header, *rows)]
        yield "\n".join([lines[0], "|" + "---|" * len(columns), *lines[1:]])


def _references(rows: list[Row], sections: dict[Row, str]) -> Iterator[str]:
    names: dict[str, list[str]] = {}
    for row in rows:
        if row in sections:
            names.setdefault(sections[row], []).append(row[0])
    if names:
        yield "Keys as in " + "; ".join(f"{section}: {', '.join(keys)}" for section, keys in names.items()) + "."


def _fields(section: type[Section]) -> list[tuple[str, FieldInfo]]:
    declared = section.__annotations__
    fields = section.model_fields.items()
    return sorted(fields, key=lambda item: item[0] not in declared and "neutral" in extra(item[1]))


def places(section: type[Section], path: str = "") -> Iterator[tuple[type[Section], str]]:
    yield section, path
    for name, field in section.model_fields.items():
        where = f"{path}.{name}" if path else name
        is_mapping = typing.get_origin(field.annotation) is dict
        for kind in section_types(field.annotation):
            yield from places(kind, f"{where}.<name>" if is_mapping else where)


def _heading(section: type[Section], paths: list[str]) -> tuple[str, str]:
    written = ", ".join(f"`{path}`" for path in dict.fromkeys(paths) if path) or "Top level"
    for tag in DISCRIMINATORS:
        kind = section.model_fields[tag].annotation if tag in section.model_fields else None
        if typing.get_origin(kind) is typing.Literal:
            return f"{written} with `{tag}: {typing.get_args(kind)[0]}`", tag
    return written, ""


def _cells(name: str, field: FieldInfo) -> Row:
    attributes = extra(field)
    unit = f" ({attributes['unit']})" if "unit" in attributes else ""
    paper = attributes.get("paper", "")
    default = _default(field)
    kind = _type(field.annotation).removesuffix(" or null" if default == "`null`" else "") + unit
    return tuple(str(cell).replace("|", "\\|") for cell in (f"`{name}`", kind, default, paper, field.description))


def extra(field: FieldInfo) -> dict[str, Any]:
    return field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}


def _default(field: FieldInfo) -> str:
    default = field.get_default(call_default_factory=True, validated_data={})
    if default is PydanticUndefined:
        return "required"
    if isinstance(default, BaseModel):
        return ""
    return f"`{json.dumps(default, ensure_ascii=False)}`"


def _type(annotation: Any) -> str:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Literal:
        return ", ".join(f"`{value}`" for value in arguments)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(dict.fromkeys("null" if a is type(None) else _type(a) for a in arguments))
    if origin is typing.Annotated:
        return _type(arguments[0])
    if origin is list:
        return f"list of {_type(arguments[0])}"
    if origin is tuple:
        return "pair of numbers"
    if origin is dict:
        return "mapping by name" if arguments[0] is not str else "mapping"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "section"
    return {str: "text", int: "integer", float: "number", bool: "true or false"}.get(annotation, str(annotation))


def register(subparsers: Any) -> None:
    parser = subparsers.add_parser("config", help="check a configuration, or regenerate its documentation")
    actions = parser.add_subparsers(dest="action", required=True)
    check = actions.add_parser("check", help="validate a configuration")
    check.add_argument("files", nargs="+", metavar="file", help="the configuration, then files to merge over it")
    check.set_defaults(run=_check)
    docs = actions.add_parser("docs", help="write config/schema.json and config/README.md")
    docs.add_argument("--folder", type=Path, default=Path("config"))
    docs.set_defaults(run=_docs)


def _check(arguments: argparse.Namespace) -> int:
    files = ", ".join(arguments.files)
    try:
        config = read_sources(read_files(arguments.files))
        require_files(config)
        require_windows(config)
    except ConfigError as error:
        for mistake in str(error).splitlines():
            is_named = mistake.startswith(tuple(arguments.files))
            say(mistake if is_named else f"{files}: {mistake}", file=sys.stderr)
        return 1
    say(f"{files}: valid")
    return 0


def _docs(arguments: argparse.Namespace) -> int:
    pages = {"schema.json": (schema(), '"title": "Config"'), "README.md": (readme(), "`g2d config docs`")}
    for name, (_, mark) in pages.items():
        if (file := arguments.folder / name).exists() and mark not in read_text(file):
            raise ValueError(f"{file}: not made by g2d config docs, so it is not replaced: name another --folder")
    for name, (text, _) in pages.items():
        write_text(arguments.folder / name, text)
    return 0
