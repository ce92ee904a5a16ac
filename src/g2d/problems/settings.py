"""Sources of problems and the training set: the keys of `pool`, `benchmarks` and `training_set`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from g2d.problems.synthetic import LEVELS
from g2d.settings import MistakeInKeyError, Revision, Section, Seed, key, repeated


class Fields(Section):
    """Columns of a data set."""

    prompt: str = key("problem", "Column with the problem text.")
    answer: str = key("answer", "Column with the reference answer, or with a solution that contains it.")
    level: str | None = key(None, 'Column with the difficulty level: 3, "3" and "Level 3" are all level 3.')
    subject: str | None = key(None, "Column with the subject.")
    id: str | None = key(None, "Column with a unique identifier; the row number is used without one.")


AnswerFormat = Literal["plain", "boxed", "gsm8k"]

OF_THE_RUN = "run"  # a seed that is drawn when the problems are made

ANSWER_FORMAT_DOC = (
    "How the reference answer is written: the column itself (plain), the last \\boxed{} in it (boxed), "
    "or the number after #### without thousands separators (gsm8k)."
)


class SyntheticProblems(Section):
    """Generated problems with answers known by construction; splits never share an expression."""

    source: Literal["synthetic"] = key(..., "Generate the problems.")
    family: Literal["arithmetic", "word_problems", "calculation", "replies"] = key(
        ...,
        "arithmetic: chained operations, five levels (plays MATH), worked from left to right: 2 + 4 * 5 is 30, so use "
        "level 1 for pretrained models, which follow convention; word_problems: short stories, three levels (plays "
        "GSM8K); calculation: long exact calculations with brackets, for real models; replies: everyday requests "
        "without right answers, for `open_ended`.",
    )
    split: Literal["train", "development", "test"] = key(..., "Which part of the problem space to draw from.")
    n: int = key(..., "Number of problems, spread evenly over the levels.", ge=1)
    seed: Seed | Literal["run"] = key(
        0, "Seed of the draw; run: one that is drawn when the problems are made, kept in their manifest."
    )
    steps: list[Annotated[int, Field(ge=2, le=30)]] | None = key(
        None,
        "Of calculation: the numbers of operations, each a difficulty level; null: 5, 10, 15 and 20.",
        neutral=None,
        min_length=1,
    )

    levels: list[int] | None = key(
        None,
        "Of arithmetic and word_problems: the levels (numbers of operations) to draw from; null: all.",
        neutral=None,
        min_length=1,
    )

    @field_validator("steps", "levels")
    @classmethod
    def _ascending(cls, numbers: list[int] | None) -> list[int] | None:
        if numbers is not None and repeated(numbers):
            raise ValueError(f"numbers of operations repeat: {numbers}")
        return None if numbers is None else sorted(numbers)

    @model_validator(mode="after")
    def _levels_of_the_family(self) -> SyntheticProblems:
        if self.steps is not None and self.family != "calculation":
            raise MistakeInKeyError("steps", f"{self.family} has levels of its own: drop the key")
        if self.levels is None:
            return self
        if self.family == "calculation":
            raise MistakeInKeyError("levels", "the levels of calculation are numbers of operations: use steps")
        if self.family == "replies":
            raise MistakeInKeyError("levels", "replies have no levels: drop the key")
        levels = LEVELS[self.family]
        if unknown := [level for level in self.levels if level not in levels]:
            raise MistakeInKeyError(
                "levels", f"{self.family} has no level {unknown[0]}: choose from {levels[0]} to {levels[-1]}"
            )
        return self


class ReasoningProblems(Section):
    """Problems of a procedural task of reasoning-gym, judged by the task; splits never share a question."""

    source: Literal["reasoning_gym"] = key(..., "Draw from the package reasoning-gym.")
    task: str = key(..., "Name of the task, for example chain_sum, gsm_symbolic or countdown.")
    split: Literal["train", "development", "test"] | None = key(
        None,
        "Which part of the questions to draw from; null: train in the pool, development in sweep.development, test in "
        "a benchmark.",
    )
    n: int = key(..., "Number of problems, spread evenly over the levels.", ge=1)
    seed: Seed = key(0, "Seed of the draw.")
    config: dict[str, Any] = key({}, "Keys of the task's configuration, for example {max_terms: 3}.")
    levels: list[dict[str, Any]] | None = key(
        None, "Keys that differ between levels, for level 1, 2, ...; null: the problems have no level.", min_length=1
    )


class LocalProblems(Section):
    """Problems in a JSONL file on this machine."""

    source: Literal["local"] = key(..., "Read a JSONL file.")
    path: str = key(..., "The file, relative to the working directory.")
    fields: Fields = key(Fields(), "Which column holds what.")
    answer_format: AnswerFormat = key("plain", ANSWER_FORMAT_DOC)


class HubProblems(Section):
    """A data set on the Hugging Face Hub, at a pinned revision."""

    source: Literal["hub"] = key(..., "Load from the Hub through `datasets`.")
    id: str = key(..., "Repository id of the data set, for example openai/gsm8k.")
    revision: Revision = key(..., "Commit hash, so that the data cannot change under a finished grid.")
    subset: str | None = key(None, "Name of the data set's configuration, where it has several.")
    split: str = key("test", "Split to load.")
    fields: Fields = key(Fields(), "Which column holds what.")
    answer_format: AnswerFormat = key("plain", ANSWER_FORMAT_DOC)


Generated = SyntheticProblems | ReasoningProblems
ProblemSource = Annotated[Generated | LocalProblems | HubProblems, Field(discriminator="source")]


def is_open_ended(source: ProblemSource) -> bool:
    """Return whether the generated problems have no right answers."""
    return isinstance(source, SyntheticProblems) and source.family == "replies"


# Sets of open-ended problems: for training, for comparing policies, and for selecting checkpoints.
OPEN_ENDED, HELD_OUT, OPEN_ENDED_DEVELOPMENT = "open-ended", "open-ended-held-out", "open-ended-development"
OPEN_ENDED_SETS = (OPEN_ENDED, HELD_OUT, OPEN_ENDED_DEVELOPMENT)
DEVELOPMENT = "development"  # problems for choosing sweep candidates and checkpoints


def place_of(problems: str) -> str:
    """Configuration key of a set of problems."""
    named = {
        "pool": "pool",
        DEVELOPMENT: "sweep.development",
        OPEN_ENDED: "open_ended.pool",
        HELD_OUT: "open_ended.held_out",
        OPEN_ENDED_DEVELOPMENT: "open_ended.development",
    }
    return named.get(problems, f"benchmarks.{problems}")


def is_fresh(source: ProblemSource) -> bool:
    """Return whether the problems are generated for the run, so that no model can have seen them."""
    return isinstance(source, SyntheticProblems) and source.seed == OF_THE_RUN


class TrainingSet(Section):
    """Prompts for warm-up and harvest, drawn from the calibrated levels."""

    n: int = key(1500, "Number of prompts.", paper="1500", ge=1)
    seed: Seed = key(0, "Seed of the draw.")


def problem_files(source: ProblemSource) -> list[str]:
    """Local files that a set of problems is read from."""
    return [source.path] if isinstance(source, LocalProblems) else []
