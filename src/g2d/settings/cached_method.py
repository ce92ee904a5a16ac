"""Methods of sections that are computed once: sections are frozen, so what follows from one is always the same."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

Owner = TypeVar("Owner")
Given = ParamSpec("Given")
Found = TypeVar("Found")


def cached_method(method: Callable[Concatenate[Owner, Given], Found]) -> Callable[Concatenate[Owner, Given], Found]:
    """Remember what a method has returned, by its arguments, as long as its owner lives; an error is not remembered.

    By the identity of the owner and not by its value, which would take as long to compare. What is returned must not be
    changed. A copy begins with nothing.
    """
    known: dict[int, dict[Any, Found]] = {}

    @functools.wraps(method)
    def ask(self: Owner, *given: Given.args, **named: Given.kwargs) -> Found:
        if id(self) not in known:
            known[id(self)] = {}
            weakref.finalize(self, known.pop, id(self))
        own, asked = known[id(self)], (given, tuple(sorted(named.items())))
        if asked not in own:
            own[asked] = method(self, *given, **named)
        return own[asked]

    return ask
