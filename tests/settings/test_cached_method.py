"""A cached method keeps its results per section, for the lifetime of the section."""

from __future__ import annotations

import gc
import weakref

import pytest

from g2d.settings import Section
from g2d.settings.cached_method import cached_method


class Result(list[int]):
    """A list that can be referenced weakly."""


class Numbers(Section):
    base: int

    @cached_method
    def plus(self, n: int) -> Result:
        if n < 0:
            raise ValueError("negative")
        return Result([self.base + n])


def test_results_are_kept_per_section_and_arguments_while_the_section_lives() -> None:
    one, equal = Numbers(base=1), Numbers(base=1)
    assert one.plus(1) is one.plus(1) is not equal.plus(1)
    assert (one.plus(1), one.plus(2), one.model_copy(update={"base": 5}).plus(1)) == ([2], [3], [6])
    for _ in range(2):
        with pytest.raises(ValueError, match="negative"):
            one.plus(-1)
    result = weakref.ref(one.plus(1))
    del one
    gc.collect()
    assert result() is None
