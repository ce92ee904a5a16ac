from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

Owner = TypeVar("Owner")
Given = ParamSpec("Given")
Found = TypeVar("Found")


def cached_method(method: Callable[Concatenate[Owner, Given], Found]) -> Callable[Concatenate[Owner, Given], Found]:
    """Cache a method's results while its owner, compared by identity, is alive. Results must not be modified."""
    caches: dict[int, dict[Any, Found]] = {}

    @functools.wraps(method)
    def ask(self: Owner, *given: Given.args, **named: Given.kwargs) -> Found:
        if id(self) not in caches:
            caches[id(self)] = {}
            weakref.finalize(self, caches.pop, id(self))
        results, arguments = caches[id(self)], (given, tuple(sorted(named.items())))
        if arguments not in results:
            results[arguments] = method(self, *given, **named)
        return results[arguments]

    return ask
