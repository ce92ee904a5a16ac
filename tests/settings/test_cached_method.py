"""A cached method keeps its results per section, for the lifetime of the section."""

from __future__ import annotations

import gc

import pytest

from g2d.settings import Section
from g2d.settings.cached_method import cached_method


class Numbers(Section):
    """A section with a method that makes a new list each time it runs."""

    base: int

    @cached_method
    def plus(self, n: int) -> list[int]:
        if n < 0:
            raise ValueError("negative")
        return [self.base + n]


def test_the_same_question_has_the_same_answer_and_others_their_own() -> None:
    one, equal = Numbers(base=1), Numbers(base=1)
    assert one.plus(1) is one.plus(1)
    assert one.plus(1) == [2] and one.plus(2) == [3]
    assert one.plus(1) is not equal.plus(1)
    assert one == equal


def test_a_copy_with_other_values_is_computed_again() -> None:
    one = Numbers(base=1)
    assert (one.plus(1), one.model_copy(update={"base": 5}).plus(1)) == ([2], [6])


def test_an_error_is_raised_each_time() -> None:
    for _ in range(2):
        with pytest.raises(ValueError, match="negative"):
            Numbers(base=1).plus(-1)


def test_results_are_dropped_with_their_section() -> None:
    closure = Numbers.plus.__closure__
    assert closure is not None
    [kept] = [cell.cell_contents for cell in closure if isinstance(cell.cell_contents, dict)]
    before = len(kept)
    one = Numbers(base=1)
    one.plus(1)
    assert len(kept) == before + 1
    del one
    gc.collect()
    assert len(kept) == before
