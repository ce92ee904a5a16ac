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


def write_message(file: Path, value: Any) -> None:
    write_text(file, json.dumps(_encoded(value)))


def read_message(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8"), object_hook=_decoded)


def _encoded(value: Any) -> Any:
    kind = type(value)
    if isinstance(value, PLAIN):
        return value
    if kind is list:
        return [item if type(item) in PLAIN else _encoded(item) for item in value]
    if kind is tuple:
        return {TYPE: "tuple", "items": _encoded([*value])}
    if isinstance(value, Path):
        return {TYPE: "path", "path": str(value)}
    if isinstance(value, dict) and all(type(name) is str and name != TYPE for name in value):
        return {name: _encoded(item) for name, item in value.items()}
    if _is_own(kind):
        encoded: dict[str, Any] = {TYPE: f"{kind.__module__}:{kind.__qualname__}"}
        for name in kind.model_fields if issubclass(kind, Section) else [field.name for field in fields(kind)]:
            encoded[name] = _encoded(getattr(value, name))
        return encoded
    raise TypeError(f"{kind.__module__}.{kind.__qualname__} cannot be sent to another process")


def _decoded(values: dict[str, Any]) -> Any:
    name = values.pop(TYPE, None)
    if name is None:
        return values
    if name == "tuple":
        return tuple(values["items"])
    if name == "path":
        return Path(values["path"])
    module, _, qualname = name.partition(":")
    kind = getattr(import_module(module), qualname, None) if module.startswith("g2d.") else None
    if not isinstance(kind, type) or not _is_own(kind):
        raise ValueError(f"{name}: no dataclass or section of g2d")
    return kind.model_construct(**values) if issubclass(kind, Section) else kind(**values)


def _is_own(kind: type) -> bool:
    return kind.__module__.startswith("g2d.") and (is_dataclass(kind) or issubclass(kind, Section))
