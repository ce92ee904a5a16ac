"""Questions to the verifier, and its verdicts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from g2d.verifier import Verification


def boxed(reference: Any, answer: str) -> tuple[Any, str]:
    return reference, rf"\boxed{{{answer}}}"


def verdicts_of(judgements: Iterable[Verification]) -> list[str]:
    return [judgement.verdict for judgement in judgements]
