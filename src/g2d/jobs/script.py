"""Type of the object `snakemake` that a script gets; the package does not import Snakemake."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol


class Values(Protocol):
    """Files, params or resources of a job, by position and by the name in the rule."""

    def __iter__(self) -> Iterator[Any]: ...
    def __getitem__(self, position: int) -> Any: ...
    def __getattr__(self, name: str) -> Any: ...
    def get(self, name: str, default: Any = None) -> Any: ...


class Snakemake(Protocol):
    rule: str
    input: Values
    output: Values
    params: Values
    resources: Values
    log: Values
    wildcards: Mapping[str, str]
    threads: int
    config: dict[str, Any]
