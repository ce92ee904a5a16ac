"""Declaration of configuration keys: type, default, bounds, unit, one sentence, the paper's value.

Each room declares the keys that it reads; `g2d.checks.load` combines the sections.
"""

from __future__ import annotations

import copy
import logging
import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

from g2d.lost_backslashes import doubtful_layout, require_backslashes

logger = logging.getLogger(__name__)


class ConfigError(ValueError):
    """An error in the configuration, with file, key and fix."""


def refuse(mistakes: Iterable[str]) -> None:
    if lines := list(mistakes):
        raise ConfigError("\n".join(lines))


class Section(BaseModel):
    """A group of keys; frozen, and unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _check_types(cls, values: Any) -> Any:
        for name, value in values.items() if isinstance(values, Mapping) else ():
            for item in _items(value) if name in cls.model_fields else ():
                if isinstance(item, bool):
                    annotation = cls.model_fields[name].annotation
                    if bool not in (annotation, *get_args(annotation)):
                        raise MistakeInKeyError(name, f"{str(item).lower()} {NO_TRUTH_VALUE}")
                elif isinstance(item, (int, float)) and abs(item) > LARGEST:
                    raise MistakeInKeyError(name, _too_large(item))
                elif isinstance(item, str):
                    _check_text(name, item)
        return values

    @field_validator("*", mode="after")
    @classmethod
    def _check_size(cls, value: Any) -> Any:
        for item in _items(value):  # numbers that YAML read as text
            if isinstance(item, (int, float)) and abs(item) > LARGEST:
                raise ValueError(_too_large(item))
        return value

    def params(self, *, only: set[str] | None = None, without: set[str] | None = None) -> dict[str, Any]:
        """Keys as parameters of a job (a change makes it stale), without neutral values (see `key`)."""
        return self.model_dump(mode="json", include=only, exclude=without, context=PARAMS)

    @model_serializer(mode="wrap")
    def _drop_neutral(self, serialize: SerializerFunctionWrapHandler, info: SerializationInfo) -> dict[str, Any]:
        values: dict[str, Any] = serialize(self)
        if info.context is not PARAMS:
            return values
        kept = {
            name: value
            for name, value in values.items()
            if getattr(self, name) != self._extra(name).get("neutral", NO_NEUTRAL)
        }
        numbers = {name for name, value in kept.items() if value == AUTO and AUTO in self._extra(name)}
        return kept | {name: self.number(name) for name in numbers}

    def number(self, name: str) -> int:
        """Return the value of a key, or for auto the number that `key` declares."""
        value = getattr(self, name)
        return int(self._extra(name)[AUTO] if value == AUTO else value)

    def _extra(self, name: str) -> dict[str, Any]:
        extra = type(self).model_fields[name].json_schema_extra
        return extra if isinstance(extra, dict) else {}


class MistakeInKeyError(ValueError):
    def __init__(self, name: str, sentence: str) -> None:
        super().__init__(sentence)
        self.name = name


def _check_text(name: str, text: str) -> None:
    if re.search("[\ud800-\udfff]", text):
        raise MistakeInKeyError(name, f"{text!r} holds a character that no file can: remove it")
    try:
        require_backslashes(text)
    except ValueError as error:
        raise MistakeInKeyError(name, str(error)) from None
    warning = doubtful_layout(text)
    if warning is not None:
        _warn_once(f"{name}: {warning}")


@cache  # a configuration is validated several times
def _warn_once(line: str) -> None:
    logger.warning(line)


def _items(value: Any) -> list[Any]:
    return list(value) if is_list(value) else [value]


def is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple))


def repeated(values: Iterable[Any]) -> bool:
    values = list(values)
    return len(set(values)) != len(values)


def _too_large(number: float) -> str:
    return f"{number:g} is beyond everything that can be run: at most {LARGEST}"


LARGEST = 2**31 - 1
AUTO = "auto"
NO_TRUTH_VALUE = "is what YAML makes of yes, no, on, off, true and false: quote a text, or write a number"
PARAMS = {"for": "params"}  # serialisation context of `Section.params`
NO_NEUTRAL: Any = object()


def key(
    default: Any = ...,
    doc: str = "",
    *,
    unit: str | None = None,
    paper: str | None = None,
    neutral: Any = NO_NEUTRAL,
    auto: int | None = None,
    **bounds: Any,
) -> Any:
    """Declare a configuration key.

    Args:
        neutral: the default, if it gives the same results as before the key existed. The parameters of jobs leave it
            out, so that finished results stay valid.
        auto: the number that stands for auto in the parameters of jobs.
    """
    extra: dict[str, Any] = {n: v for n, v in (("unit", unit), ("paper", paper), (AUTO, auto)) if v is not None}
    if neutral is not NO_NEUTRAL:
        if neutral != default:
            raise TypeError(f"the neutral value {neutral!r} of a key must be its default, not {default!r}")
        extra["neutral"] = neutral
    if isinstance(default, (list, dict, BaseModel)):
        return Field(default_factory=lambda: copy.deepcopy(default), description=doc, json_schema_extra=extra, **bounds)
    return Field(default, description=doc, json_schema_extra=extra, **bounds)


# File names are limited to 255 bytes.
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)]
Steps = Annotated[int, Field(ge=0)]
Rows = Annotated[int, Field(ge=1)] | Literal["auto"]  # rows per pass
Seed = Annotated[int, Field(ge=0, lt=2**31)]
Revision = Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]
