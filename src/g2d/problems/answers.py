r"""Reference answers: from the column of a data set to the content of \boxed{}."""

from __future__ import annotations

import re
from typing import Any

from g2d.problems.settings import AnswerFormat
from g2d.verifier.extraction import last_boxed
from g2d.verifier.reference import require_answer, written_out

NUMBER = re.compile(r"-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?")


def reference_answer(value: Any, answer_format: AnswerFormat) -> str:
    """The reference answer in a data set's column.

    Raises:
        ValueError: the column holds no answer in this format; one line that says why.
    """
    if value is None or isinstance(value, (bool, list, dict)):
        raise ValueError(f"expected text or a number, not {value!r}")
    match answer_format:
        case "plain":
            answer = plain(value)
        case "boxed":
            answer = boxed(str(value))
        case "gsm8k":
            answer = gsm8k(str(value))
    return require_answer(answer)


def plain(value: str | int | float) -> str:
    """The column itself; 142.0 becomes "142" (some publishers store integers as floats).

    Raises:
        ValueError: it is empty, or not a finite number.
    """
    if isinstance(value, float):
        if value in (float("inf"), float("-inf")) or value != value:  # noqa: PLR0124
            raise ValueError(f"{value} is not a finite number")
        value = int(value) if value.is_integer() else written_out(value)
    answer = str(value).strip()
    if not answer:
        raise ValueError("the answer is empty")
    return answer


def boxed(solution: str) -> str:
    r"""Content of the last \boxed{...} or \fbox{...}; an empty box gives "", as in two solutions of MATH's train split.

    Raises:
        ValueError: there is no terminated box.
    """
    content = last_boxed(solution)
    if content is None:
        raise ValueError("no terminated \\boxed{...} in the solution")
    return content


def gsm8k(solution: str) -> str:
    """The number after the last ####, without thousands separators.

    Raises:
        ValueError: there is no ####, or something else than a number after it.
    """
    _, mark, tail = solution.rpartition("####")
    if not mark:
        raise ValueError("no #### in the solution")
    number = tail.strip()
    if not NUMBER.fullmatch(number):
        raise ValueError(f"expected a number after ####, not {number!r}")
    return number.replace(",", "")
