"""Keys of `pool`, `benchmarks` and `training_set`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from g2d.problems.synthetic import LEVELS, Family, Split
from g2d.settings import MistakeInKeyError, Revision, Section, Seed, key, repeated


class Fields(Section):
    """Names of a data set's columns."""

    prompt: str = key("problem", "Problem.")
    answer: str = key("answer", "Reference answer, or a solution that contains it.")
    level: str | None = key(None, 'Difficulty level; 3, "3" and "Level 3" are equal.')
    subject: str | None = key(None, "Subject.")
    id: str | None = key(None, "Identifier; null: the row number.")
    cluster: str | None = key(
        None,
        "Cluster: questions with the same value (a passage, a template) are not independent; null: each is its own.",
        neutral=None,
    )
    metadata: str | None = key(None, "Any JSON, for a verifier in Python (docs/verifier.md).", neutral=None)


AnswerFormat = Literal["plain", "boxed", "gsm8k"]

ANSWER_FORMAT_DOC = (
    "Reference answer: the column (plain), its last \\boxed{} (boxed), or the number after #### (gsm8k). null: plain, "
    "unless most answers look like solutions."
)


class Problems(Section):
    """Base class of sources of problems."""

    select_by: bool = key(
        False,
        "Of one benchmark: its accuracies select checkpoints (selection.csv), and no tests are done on it.",
        neutral=False,
    )


class SyntheticProblems(Problems):
    """Generated problems; splits never share an expression."""

    source: Literal["synthetic"] = key(..., "Generate the problems.")
    family: Family = key(
        ...,
        "arithmetic: operations from left to right (2 + 4 * 5 is 30), five levels; pretrained models need "
        "level 1. word_problems: short stories, three levels. facts: a sum, difference or product of a number up to 30 "
        "and one up to 10, one level; each expression once before any has a second wording.",
    )
    split: Split = key(..., "Part of the problem space to sample from.")
    n: int = key(
        ...,
        "Number of problems, spread evenly over the levels. Wordings of one expression are several problems: level 1 "
        "of arithmetic has 28 expressions in the split test, each in eight wordings.",
        ge=1,
    )
    seed: Seed = key(0, "Seed.")

    levels: list[int] | None = key(None, "Levels (numbers of operations); null: all.", neutral=None, min_length=1)

    @field_validator("levels")
    @classmethod
    def _ascending(cls, numbers: list[int] | None) -> list[int] | None:
        if numbers is not None and repeated(numbers):
            raise ValueError(f"numbers of operations repeat: {numbers}")
        return None if numbers is None else sorted(numbers)

    @model_validator(mode="after")
    def _levels_of_the_family(self) -> SyntheticProblems:
        levels = LEVELS[self.family]
        for level in self.levels or ():
            if level not in levels:
                raise MistakeInKeyError(
                    "levels", f"{self.family} has no level {level}: choose from {levels[0]} to {levels[-1]}"
                )
        return self

    @property
    def drawn_levels(self) -> Sequence[int]:
        return self.levels or LEVELS[self.family]


class LocalProblems(Problems):
    """Problems in a local file."""

    source: Literal["local"] = key(..., "Read a file.")
    path: str = key(
        ..., "JSONL, or .json, .csv or .parquet, also .gz; relative to the working directory.", is_place=True
    )
    fields: Fields = key(Fields(), "Column names.")
    answer_format: AnswerFormat | None = key(None, ANSWER_FORMAT_DOC)


class HubProblems(Problems):
    """A data set on the Hugging Face Hub, at a pinned revision."""

    source: Literal["hub"] = key(..., "Load from the Hub through `datasets`.")
    id: str = key(..., "Repository id.")
    revision: Revision = key(..., "Commit hash.")
    subset: str | None = key(None, "Configuration of the data set, if it has several.")
    split: str = key("test", "Split to load.")
    fields: Fields = key(Fields(), "Column names.")
    answer_format: AnswerFormat | None = key(None, ANSWER_FORMAT_DOC)


ProblemSource = Annotated[SyntheticProblems | LocalProblems | HubProblems, Field(discriminator="source")]


OPEN_ENDED = "open-ended"  # to train on
HELD_OUT = "open-ended-held-out"  # to compare policies
OPEN_ENDED_SETS = (OPEN_ENDED, HELD_OUT)


def place_of(problems: str) -> str:
    named = {
        "pool": "pool",
        OPEN_ENDED: "open_ended.pool",
        HELD_OUT: "open_ended.held_out",
    }
    return named.get(problems, f"benchmarks.{problems}")


class TrainingSet(Section):
    """Prompts of warm-up and harvest, sampled from the calibrated levels."""

    n: int = key(1500, "Number of prompts.", paper="1500", ge=1)
    seed: Seed = key(0, "Seed of the sample.")


def problem_files(source: ProblemSource) -> list[str]:
    return [source.path] if isinstance(source, LocalProblems) else []
