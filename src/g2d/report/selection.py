"""Selected checkpoints in words: by what they were chosen, for the methods."""

from __future__ import annotations

from collections.abc import Callable

from g2d.experiment.config import Config
from g2d.experiment.selection import chosen_by, selecting
from g2d.experiment.sweep import held_out
from g2d.problems.settings import DEVELOPMENT, OPEN_ENDED_DEVELOPMENT
from g2d.report.phrases import listed, sentence


def selection_paragraph(config: Config, described: Callable[[str], str]) -> str:
    """How one checkpoint of a training was chosen; nothing where none was.

    Args:
        described: a set of problems in words, by the name of its file.
    """
    by_kind: dict[tuple[str, ...], list[str]] = {}
    for name in selecting(config).values():
        by_kind.setdefault(tuple(chosen_by(config, name)), []).append(name)
    sentences = []
    for kinds, names in by_kind.items():
        scores = [_score(config, kind, described) for kind in kinds]
        highest = scores[0] if len(scores) == 1 else f"mean of the {' and the '.join(scores)}"
        sentences.append(
            f"Of {listed(names)} one checkpoint was evaluated, for each seed the K with the highest {highest}."
        )
    if any("open_ended" in kinds for kinds in by_kind):
        sentences.append(
            "The reward at equal length is the mean reward less b times the mean length beyond that of all candidates, "
            "where b is the slope of the reward on the length between replies of one checkpoint to one prompt."
        )
    if sentences:
        sentences.append("None of these prompts was trained on or evaluated, and no benchmark was answered before.")
    return " ".join(map(sentence, sentences))


def _score(config: Config, kind: str, described: Callable[[str], str]) -> str:
    if kind == "open_ended":
        return f"reward at equal length on {described(OPEN_ENDED_DEVELOPMENT)}"
    n = held_out(config)
    return f"accuracy on {f'{n} problems held out of the training pool' if n else described(DEVELOPMENT)}"
