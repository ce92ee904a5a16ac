"""Write `config/schema.json` and `config/README.md` from the configuration classes: `python docs/keys.py`."""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from g2d.config.sections import Config
from g2d.settings import Section
from g2d.settings.mistakes import DISCRIMINATORS, section_types

FOLDER = Path(__file__).parents[1] / "config"

INTRODUCTION = """\
# Configuration

| file | content |
|---|---|
| `config.yaml` | the demonstration, and the default |
| `paper.yaml` | the paper's grid |
| `small.yaml` | a small real experiment on one GPU |
| `smollm2.yaml` | a pretrained model on a laptop |
| `bridging.yaml`, `off_policy.yaml` | grids after arXiv 2506.21495 and 2505.22257 |
| `overlays/` | files to merge over another one |

The first lines of the files after papers list the differences. Run a file in a separate folder: `snakemake --cores
all --directory runs/NAME --configfile my.yaml`. Later files override earlier ones; `--config seeds='[0]'` sets single
values. Keys that `pool`, `benchmarks.<name>` and other sources share are described once, under `pool`.

Mistakes are reported with file, key and fix before a job starts, or by `g2d config check my.yaml overlay.yaml`: also
unknown and repeated keys, numbers that YAML reads differently (`010` is 8, `1:30` is 90), and files that are not UTF-8.
Defaults are the values of the paper (arXiv 2605.21266) if it states them. Editors complete keys with
`# yaml-language-server: $schema=schema.json`.

`python docs/keys.py` generates this page from `Config` in `src/g2d/config/sections.py` and the sections that it names.
"""

Row = tuple[str, ...]  # key, type, default, the paper's value, meaning


def schema() -> str:
    return json.dumps(Config.model_json_schema(), indent=2) + "\n"


def readme() -> str:
    headings: dict[type[Section], list[str]] = {}
    for section, place in places(Config):
        headings.setdefault(section, []).append(place)
    pages, first, shown = [INTRODUCTION], dict[Row, str](), list[list[str]]()
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


def main() -> None:
    (FOLDER / "schema.json").write_text(schema(), encoding="utf-8")
    (FOLDER / "README.md").write_text(readme(), encoding="utf-8")


if __name__ == "__main__":
    main()
