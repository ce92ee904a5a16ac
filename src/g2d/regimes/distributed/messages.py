"""Messages between the processes of a training, as JSON: results folders are shared, and reading a pickle runs code."""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from g2d.jobs.files import write_text
from g2d.settings import Section

TYPE = "__type__"  # key of JSON objects that represent other types
PLAIN = (str, int, float, bool, type(None))


def write_message(file: Path, value: object) -> None:
    write_text(file, json.dumps(_encoded(value)))


def read_message(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8"), object_hook=_decoded)


def _encoded(value: object) -> object:
    kind = type(value)
    if isinstance(value, PLAIN):
        return value
    if type(value) is list:
        return [item if type(item) in PLAIN else _encoded(item) for item in value]
    if type(value) is tuple:
        return {TYPE: "tuple", "items": _encoded([*value])}
    if isinstance(value, Path):
        return {TYPE: "path", "path": str(value)}
    if isinstance(value, dict) and all(type(name) is str and name != TYPE for name in value):
        return {name: _encoded(item) for name, item in value.items()}
    names = _field_names(kind)
    if names is None:
        raise TypeError(f"{kind.__module__}.{kind.__qualname__} cannot be sent to another process")
    encoded: dict[str, object] = {TYPE: f"{kind.__module__}:{kind.__qualname__}"}
    for name in names:
        encoded[name] = _encoded(getattr(value, name))
    return encoded


def _decoded(values: dict[str, Any]) -> object:
    name = values.pop(TYPE, None)
    if name is None:
        return values
    if name == "tuple":
        return tuple(values["items"])
    if name == "path":
        return Path(values["path"])
    module, _, qualname = name.partition(":")
    kind = getattr(import_module(module), qualname, None) if module.startswith("g2d.") else None
    if not isinstance(kind, type) or _field_names(kind) is None:
        raise ValueError(f"{name}: no dataclass or section of g2d")
    return kind.model_construct(**values) if issubclass(kind, Section) else kind(**values)


def _field_names(kind: type) -> list[str] | None:
    """Return the fields of a dataclass or section of g2d; None for another type."""
    if not kind.__module__.startswith("g2d."):
        return None
    if issubclass(kind, Section):
        return list(kind.model_fields)
    if is_dataclass(kind):
        return [field.name for field in fields(kind)]
    return None
