"""Declaration of configuration keys: type, default, bounds, unit, one sentence, the paper's value.

Each room declares the keys that it reads; `g2d.checks.load` combines the sections.
"""

from __future__ import annotations

import copy
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
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
    """Raise a ConfigError with a line per mistake, if there is one."""
    lines = list(mistakes)
    if lines:
        raise ConfigError("\n".join(lines))


def together(*checks: Callable[[], object]) -> None:
    """Raise a ConfigError with the mistakes of all checks."""
    lines: list[str] = []
    for check in checks:
        try:
            check()
        except ConfigError as error:
            lines += str(error).splitlines()
    refuse(dict.fromkeys(lines))


class Section(BaseModel):
    """A group of keys; frozen, and unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _check_types(cls, values: object) -> object:
        if not isinstance(values, Mapping):
            return values
        for name, value in values.items():
            if name in cls.model_fields:
                for item in _items(value):
                    cls._check_item(name, item)
        return values

    @classmethod
    def _check_item(cls, name: str, item: object) -> None:
        """Refuse what pydantic would convert, and text that no file can hold."""
        if isinstance(item, bool):
            annotation = cls.model_fields[name].annotation
            if bool not in (annotation, *get_args(annotation)):
                raise MistakeInKeyError(name, f"{str(item).lower()} {NO_TRUTH_VALUE}")
        elif isinstance(item, (int, float)) and abs(item) > LARGEST:
            raise MistakeInKeyError(name, _too_large(item))
        elif isinstance(item, str):
            _check_text(name, item)

    @field_validator("*", mode="after")
    @classmethod
    def _check_size(cls, value: object) -> object:
        for item in _items(value):  # numbers that YAML read as text
            if isinstance(item, (int, float)) and abs(item) > LARGEST:
                raise ValueError(_too_large(item))
        return value

    def params(self, *, only: set[str] | None = None, without: set[str] | None = None) -> dict[str, Any]:
        """Keys as parameters of a job (a change makes it stale), without neutral values, places and keys of the machine
        (see `key`).

        They are sorted, because Snakemake compares parameters as text.
        """
        return self.model_dump(mode="json", include=only, exclude=without, context=PARAMS)

    @model_serializer(mode="wrap")
    def _drop_neutral(self, serialize: SerializerFunctionWrapHandler, info: SerializationInfo) -> dict[str, Any]:
        values: dict[str, Any] = serialize(self)
        if info.context is not PARAMS:
            return values
        kept = {}
        for name, value in sorted(values.items()):
            extra = self._extra(name)
            if PLACE in extra or MACHINE in extra or getattr(self, name) == extra.get("neutral", NO_NEUTRAL):
                continue
            kept[name] = self.number(name) if value == AUTO and AUTO in extra else value
        return kept

    def number(self, name: str) -> int:
        """Return the value of a key, or for auto the number that `key` declares."""
        value = getattr(self, name)
        if value == AUTO:
            value = self._extra(name)[AUTO]
        return int(value)

    def _extra(self, name: str) -> dict[str, Any]:
        """Return what `key` declared beside pydantic's own arguments."""
        extra = type(self).model_fields[name].json_schema_extra
        if isinstance(extra, dict):
            return extra
        return {}


class MistakeInKeyError(ValueError):
    """A mistake in one key of a section, found by a validator of the section."""

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


def _items(value: object) -> Sequence[object]:
    if isinstance(value, (list, tuple)):
        return value
    return [value]


def repeated(values: Iterable[object]) -> bool:
    values = list(values)
    return len(set(values)) != len(values)


def _too_large(number: float) -> str:
    return f"{number:g} is beyond everything that can be run: at most {LARGEST}"


LARGEST = 2**31 - 1
AUTO = "auto"
PLACE = "place"
MACHINE = "machine"
NO_TRUTH_VALUE = "is what YAML makes of yes, no, on, off, true and false: quote a text, or write a number"
PARAMS = {"for": "params"}  # serialisation context of `Section.params`
NO_NEUTRAL = object()


def key(
    default: object = ...,
    doc: str = "",
    *,
    unit: str | None = None,
    paper: str | None = None,
    neutral: object = NO_NEUTRAL,
    auto: int | None = None,
    is_place: bool = False,
    of_machine: bool = False,
    **bounds: Any,
) -> Any:
    """Declare a configuration key.

    Args:
        neutral: the default, if it gives the same results as before the key existed. It is left out of the parameters
            of jobs, so that finished results stay valid.
        auto: the number in place of auto in the parameters of jobs.
        is_place: the key says where files are. It is left out of the parameters of jobs, because the digests of the
            files identify them.
        of_machine: the key changes speed and memory, and results by rounding at most. It is left out of the parameters
            of jobs that Snakemake compares, and is in `params.machine`.
    """
    extra: dict[str, Any] = {}
    if unit is not None:
        extra["unit"] = unit
    if paper is not None:
        extra["paper"] = paper
    if auto is not None:
        extra[AUTO] = auto
    if is_place:
        extra[PLACE] = True
    if of_machine:
        extra[MACHINE] = True
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
