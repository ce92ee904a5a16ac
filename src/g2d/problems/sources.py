"""Problems of a configured source: generated, a JSONL file, or a data set on the Hugging Face Hub.

Files and Hub rows pass through the same normaliser. Errors are one line with the place and the configuration key.
`datasets` is imported only for the Hub: it takes seconds.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from g2d.jobs.files import read_rows
from g2d.plain import first_line
from g2d.problems import generated
from g2d.problems.problem import Problem
from g2d.problems.settings import (
    OPEN_ENDED_SETS,
    AnswerFormat,
    Fields,
    HubProblems,
    LocalProblems,
    ProblemSource,
    SyntheticProblems,
    place_of,
)
from g2d.verifier.extraction import last_boxed
from g2d.verifier.reference import require_answer, written_out

NUMBER = re.compile(r"-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?")
LEVEL = re.compile(r"(?:level\s*)?(\d+)", re.IGNORECASE)
UNKNOWN_LEVEL = re.compile(r"(?:level\s*)?\??", re.IGNORECASE)  # MATH has two rows of "Level ?"

COMMIT = re.compile(r"[0-9a-f]{40}")  # names the cache folder of a Hub data set's revision
LOCAL_WAY_OUT = "or save the rows as JSONL and use source: local with its path"

LONE_SURROGATE = re.compile(r"[\ud800-\udfff]")  # valid in JSON, and not in UTF-8

Row = tuple[str, Mapping[str, Any]]  # its place for messages, and its columns


class ProblemError(ValueError):
    """Problems that cannot be read as configured: one line with place, column or key, and fix."""


def load_problems(name: str, source: ProblemSource, working_dir: str | Path = ".") -> list[Problem]:
    """Read the problems of the pool or of a benchmark, in the order of their source.

    Args:
        name: "pool", or the benchmark's name; the prefix of ids where rows have none.
        source: its section of the configuration.
        working_dir: folder that a local path is relative to.

    Raises:
        ProblemError: a row cannot be read as configured, ids repeat, or the source cannot be reached.
    """
    match source:
        case SyntheticProblems():
            try:
                return generated.generate(source)
            except ValueError as error:
                raise ProblemError(f"{place_of(name)}.n: {error}") from None
        case LocalProblems():
            rows, origin = _jsonl_rows(name, Path(working_dir) / source.path), f"local:{source.path}"
        case HubProblems():
            rows, origin = _hub_rows(name, source), f"hub:{source.id}@{source.revision}"
    return normalise(name, rows, source.fields, source.answer_format, origin)


def normalise(
    name: str, rows: Iterable[Row], fields: Fields, answer_format: AnswerFormat, source: str
) -> list[Problem]:
    """Turn a publisher's rows into problems; those of open-ended sets have no answer.

    Raises:
        ProblemError: no rows, a missing column, an unreadable value, a row without an answer, or repeated ids.
    """
    key = place_of(name)
    problems: list[Problem] = []
    places: dict[str, str] = {}
    absent = {field: column for field, column in (("level", fields.level), ("subject", fields.subject)) if column}
    columns: list[str] = []
    for number, (place, row) in enumerate(rows):
        columns = list(row)
        absent = {field: column for field, column in absent.items() if column not in row}
        reader = _RowReader(key, place, row)
        problem = Problem(
            problem_id=f"{name}-{number:05d}" if fields.id is None else reader.text(fields.id, "id"),
            prompt=reader.text(fields.prompt, "prompt"),
            answer=None if name in OPEN_ENDED_SETS else reader.answer(fields.answer, answer_format),
            level=None if fields.level is None else reader.level(fields.level),
            subject=None if fields.subject is None else reader.subject(fields.subject),
            source=source,
        )
        if (first := places.setdefault(problem.problem_id, place)) != place:
            raise ProblemError(
                f"{place}: id {problem.problem_id!r} was already used at {first}: make the ids unique, or drop "
                f"{key}.fields.id to number the rows"
            )
        problems.append(problem)
    if not problems:
        raise ProblemError(f"{key}: {source} holds no rows: point it at a data set that has some")
    # A column that is missing in every row has a wrong name.
    for field, column in absent.items():
        raise ProblemError(f"{source}: {_no_column(column, columns, f'{key}.fields.{field}')}")
    return problems


def parse_level(value: Any) -> int | None:
    """3, 3.0, "3" and "Level 3" are 3; "Level ?", "" and None are None.

    Raises:
        ValueError: anything else.
    """
    if value is None:
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    text = str(value).strip()
    if match := LEVEL.fullmatch(text):
        return int(match[1])
    if UNKNOWN_LEVEL.fullmatch(text):
        return None
    raise ValueError(f'{value!r} is not a level such as 3, "3" or "Level 3"')


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


class _RowReader:
    """Values of one row; errors name its place and the key of the column."""

    def __init__(self, key: str, place: str, row: Mapping[str, Any]) -> None:
        self.key, self.place, self.row = key, place, row

    def text(self, column: str, field: str) -> str:
        text = self._as_text(column, field, self._value(column, field))
        if not text.strip():
            raise ProblemError(f"{self.place}: column {column!r} is empty: fill it in or remove the row")
        return text

    def subject(self, column: str) -> str | None:
        value = self._value(column, "subject") if column in self.row else None
        return None if value is None else self._as_text(column, "subject", value)

    def answer(self, column: str, answer_format: AnswerFormat) -> str:
        value = self._value(column, "answer")
        try:
            return reference_answer(value, answer_format)
        except ValueError as error:
            raise ProblemError(
                f"{self.place}: column {column!r} has no answer in the format {answer_format!r}: {error}; correct the "
                f"row or {self.key}.answer_format"
            ) from None

    def level(self, column: str) -> int | None:
        try:
            return parse_level(self.row.get(column))
        except ValueError as error:
            raise ProblemError(
                f"{self.place}: column {column!r}: {error}: correct the row or {self.key}.fields.level"
            ) from None

    def _as_text(self, column: str, field: str, value: Any) -> str:
        """A text, or an id or subject that is a number, as text."""
        if value is None:
            return ""
        numbers = () if field == "prompt" else (int, float)
        if isinstance(value, bool) or not isinstance(value, (str, *numbers)) or value != value:  # noqa: PLR0124
            raise ProblemError(
                f"{self.place}: column {column!r} is no text: {reprlib.repr(value)}; write text there, or correct "
                f"{self.key}.fields.{field}"
            )
        return str(value)

    def _value(self, column: str, field: str) -> Any:
        if column not in self.row:
            raise ProblemError(f"{self.place}: {_no_column(column, list(self.row), f'{self.key}.fields.{field}')}")
        value = self.row[column]
        if isinstance(value, str) and LONE_SURROGATE.search(value):
            raise ProblemError(f"{self.place}: column {column!r} holds half a character (a lone surrogate): remove it")
        return value


def _no_column(column: str, available: Sequence[str], key: str) -> str:
    return f"no column {column!r} (there are: {', '.join(available)}): set {key}"


def _jsonl_rows(name: str, path: Path) -> Iterator[Row]:
    """Rows of a JSONL file; blank lines are skipped, a byte-order mark is tolerated."""
    key = f"{place_of(name)}.path"
    try:
        for number, row in read_rows(path):
            yield f"{path}, line {number}", row
    except ValueError as error:
        raise ProblemError(str(error)) from None
    except OSError as error:
        raise ProblemError(f"{path}: cannot be read ({error.strerror}): correct {key}") from None


def _hub_rows(name: str, source: HubProblems) -> Iterator[Row]:
    dataset = _load_from_hub(place_of(name), source)
    for number, row in enumerate(dataset):
        yield f"{source.id}, split {source.split}, row {number}", row


def _load_from_hub(key: str, source: HubProblems) -> Any:
    """Load one split at the pinned revision.

    Raises:
        ProblemError: unknown or gated id, unknown revision, subset or split, no network, or another revision's cache.
    """
    if Path(source.id).is_dir():  # `datasets` would read the folder and ignore the revision
        raise ProblemError(
            f"{key}.id: {source.id} is also a folder here, which would hide the Hub's data set: run elsewhere, or read "
            f"a file in it with source: local"
        )
    import datasets

    try:
        dataset = datasets.load_dataset(source.id, source.subset, split=source.split, revision=source.revision)
    except Exception as error:
        raise ProblemError(_hub_message(key, source, error)) from error
    # Without a network `datasets` falls back to the newest cached revision, whatever was asked for.
    for cached in {Path(file["filename"]).parent.name for file in dataset.cache_files}:
        if COMMIT.fullmatch(cached) and cached != source.revision:
            raise ProblemError(
                f"{key}.revision: the Hub is out of reach and the newest copy of {source.id} in the cache is {cached}: "
                f"connect this machine to the Hub, pin that revision, {LOCAL_WAY_OUT}"
            )
    return dataset


def _hub_message(key: str, source: HubProblems, error: Exception) -> str:
    """One line for what `datasets` and the Hub's client raise, by the text of the error."""
    reason = first_line(error)
    if "gated" in reason.lower():
        fix = f"ask for access on the data set's page and log in with `hf auth login`, change {key}.id"
    elif "revision" in reason.lower():
        fix = f"correct {key}.revision"
    elif isinstance(error, ConnectionError):
        fix = "connect this machine to the Hub, unset HF_HUB_OFFLINE"
    elif "split" in reason.lower():
        fix = f"correct {key}.split"
    elif "config" in reason.lower():
        fix = f"correct {key}.subset"
    else:
        fix = f"correct {key}.id, {key}.subset or {key}.split"
    return f"{key}: cannot load {source.id} from the Hub ({reason}): {fix}, {LOCAL_WAY_OUT}"
