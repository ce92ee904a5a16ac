"""Problems of a configured source.

Only parquet and the Hub need `datasets`: its import takes seconds, and it gives each column of JSON one type.
"""

from __future__ import annotations

import json
import logging
import math
import re
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, TypeVar

from g2d.jobs.files import open_given, parse_json, read_rows
from g2d.lost_backslashes import doubtful_layout, require_backslashes
from g2d.plain import first_line, plain
from g2d.problems import synthetic
from g2d.problems.problem import Problem
from g2d.problems.problem_keys import (
    OPEN_ENDED,
    OPEN_ENDED_SETS,
    AnswerFormat,
    HubProblems,
    LocalProblems,
    ProblemSource,
    SyntheticProblems,
    place_of,
)
from g2d.problems.text_key import text_key
from g2d.verifier.extraction import last_boxed, require_answer, written_out

if TYPE_CHECKING:
    from datasets import Dataset

logger = logging.getLogger(__name__)

NUMBER = re.compile(r"-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?")
LEVEL = re.compile(r"(?:level\s*)?(?:(\d+)|\??)", re.IGNORECASE)  # MATH has two rows of "Level ?"
COMMIT = re.compile(r"[0-9a-f]{40}")  # revision of a Hub data set in the cache
LOCAL_WAY_OUT = "or save the rows as JSONL and use source: local with its path"

Row = tuple[str, Mapping[str, object]]  # (place for messages, columns)
Value = TypeVar("Value")


class ProblemError(ValueError):
    """Problems cannot be read as configured; one line with place, column or key, and fix."""


def load_problems(name: str, source: ProblemSource) -> list[Problem]:
    """Read the problems of the pool or a benchmark, in the order of their source.

    A ProblemError if a row does not fit the configuration, ids or questions repeat, or the source cannot be reached.
    """
    key = place_of(name)
    rows: Iterable[Row]
    match source:
        case SyntheticProblems():
            try:
                return synthetic.generate(source.family, source.split, source.n, source.seed, source.drawn_levels)
            except ValueError as error:
                raise ProblemError(f"{key}.n: {error}") from None
        case LocalProblems():
            rows = _local_rows(f"{key}.path", Path(source.path))
            origin = f"local:{source.path}"
        case HubProblems():
            rows = _hub_rows(key, source)
            origin = f"hub:{source.id}@{source.revision}"
    return _normalise(name, rows, source, origin)


def _normalise(name: str, rows: Iterable[Row], source: LocalProblems | HubProblems, origin: str) -> list[Problem]:
    key = place_of(name)
    problems: list[Problem] = []
    places: dict[str, str] = {}
    doubtful: list[str] = []
    columns: list[str] = []
    used_columns: set[str] = set()
    answers: list[str] = []  # as written
    read_answer = partial(reference_answer, answer_format=source.answer_format or "plain")
    for number, (place, row) in enumerate(rows):
        columns = list(row)
        used_columns.update(columns)
        cells = _Cells(key, source, place, row)
        answers.append(str(row.get(source.fields.answer)))
        problem = Problem(
            problem_id=cells.read_optional("id", _filled) or f"{name}-{number:05d}",
            prompt=cells.read("prompt", _prompt),
            answer=None if name in OPEN_ENDED_SETS else cells.read("answer", read_answer),
            level=cells.read_optional("level", parse_level),
            subject=cells.read_optional("subject", _subject),
            source=origin,
            metadata=cells.read_optional("metadata", _json),
            cluster=cells.read_optional("cluster", _filled) or "",
        )
        first = places.setdefault(problem.problem_id, place)
        if first != place:
            raise ProblemError(
                f"{place}: id {problem.problem_id!r} was already used at {first}: make the ids unique, or drop "
                f"{key}.fields.id to number the rows"
            )
        problems.append(problem)
        warning = doubtful_layout(problem.prompt)
        if warning is not None:
            doubtful.append(f"{place}: {warning}")
    if doubtful:
        logger.warning("%s (%d such texts)", plain(doubtful[0]), len(doubtful))
    if not problems:
        raise ProblemError(f"{key}: {origin} holds no rows: point it at a data set that has some")
    for field in OPTIONAL:
        column = getattr(source.fields, field)
        if column and column not in used_columns:  # missing from every row: probably misspelled
            raise ProblemError(f"{origin}: {_no_column(column, columns, f'{key}.fields.{field}')}")
    if source.answer_format is None and name not in OPEN_ENDED_SETS:
        _require_no_solutions(key, source.fields.answer, answers)
    if len(problems) > 1 and len({problem.cluster for problem in problems}) == 1:
        raise ProblemError(
            f"{origin}: column {source.fields.cluster!r}: all problems are in one cluster: name another column in "
            f"{key}.fields.cluster, or drop it"
        )
    if name == "pool":
        _require_one_reference(problems, places)
    elif name != OPEN_ENDED:
        _require_distinct(key, problems, places)
    return problems


OPTIONAL = ("level", "subject")  # fields whose column a row may lack


@dataclass(frozen=True, slots=True)
class _Cells:
    """The cells of a row by field; a ProblemError names place, column and key."""

    key: str  # place of the source in the configuration
    source: LocalProblems | HubProblems
    place: str
    row: Mapping[str, object]

    def read_optional(self, field: str, parse: Callable[[object], Value]) -> Value | None:
        """Return the value of a field of `Fields`; None if it has no column, or an optional one is missing."""
        column = getattr(self.source.fields, field)
        if column is None or (column not in self.row and field in OPTIONAL):
            return None
        return self.read(field, parse)

    def read(self, field: str, parse: Callable[[object], Value]) -> Value:
        column = getattr(self.source.fields, field)
        if column not in self.row:
            raise ProblemError(f"{self.place}: {_no_column(column, list(self.row), f'{self.key}.fields.{field}')}")
        value = self.row[column]
        try:
            if isinstance(value, str) and field != "metadata":  # no model sees metadata
                require_backslashes(value)
            return parse(value)
        except (ValueError, TypeError) as error:
            key = f"{self.key}.answer_format" if field == "answer" else f"{self.key}.fields.{field}"
            raise ProblemError(f"{self.place}: column {column!r}: {error}: correct the row or {key}") from None


# Marks of a solution, the same in words, and the fix.
SOLUTIONS = (
    ("####", "contain ####", "set {key}.answer_format: gsm8k"),
    ("\\boxed", "contain \\boxed", "set {key}.answer_format: boxed"),
    ("\n", "have several lines", "name the column of the final answer in {key}.fields.answer"),
)


def _require_no_solutions(key: str, column: str, answers: Sequence[str]) -> None:
    """Raise a ProblemError if most answers are solutions: no completion would equal them."""
    for mark, words, fix in SOLUTIONS:
        n = sum(mark in answer.strip() for answer in answers)
        if 2 * n > len(answers):
            raise ProblemError(
                f"{key}: {n:,} of {len(answers):,} answers in column {column!r} {words}: {fix.format(key=key)}, or "
                f"{key}.answer_format: plain if the whole text is the answer"
            )


def _require_one_reference(problems: Sequence[Problem], places: Mapping[str, str]) -> None:
    """Raise a ProblemError if the pool has a text with two reference answers; a repeated row only has more weight."""
    seen: dict[str, Problem] = {}
    for problem in problems:
        first = seen.setdefault(text_key(problem.prompt), problem)
        if text_key(first.answer or "") != text_key(problem.answer or ""):
            raise ProblemError(
                f"{places[problem.problem_id]}: asks what {places[first.problem_id]} asks, but its reference answer is "
                f"{problem.answer!r}, not {first.answer!r}: keep one of them"
            )


def _require_distinct(key: str, problems: Sequence[Problem], places: Mapping[str, str]) -> None:
    """Raise a ProblemError if a benchmark has a question twice: intervals would count it as two."""
    seen: dict[str, Problem] = {}
    repeats = []
    for problem in problems:
        first = seen.setdefault(text_key(problem.prompt), problem)
        if first is not problem:
            repeats.append(f"{places[problem.problem_id]} = {places[first.problem_id]}")
    if repeats:
        more = ", ..." if repeats[3:] else ""
        raise ProblemError(
            f"{key}: {len(repeats)} of {len(problems)} rows repeat a question, which would count as several "
            f"({', '.join(repeats[:3])}{more}): keep each question once, in a JSONL file with source: local"
        )


def parse_level(value: object) -> int | None:
    """Parse 3, 3.0, "3" and "Level 3" as 3, and "Level ?", "" and None as None."""
    if value is None:
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    match = LEVEL.fullmatch(str(value).strip())
    if match:
        return int(match[1]) if match[1] else None
    raise ValueError(f'{value!r} is not a level such as 3, "3" or "Level 3"')


def reference_answer(value: object, answer_format: AnswerFormat) -> str:
    """Read the reference answer; a ValueError if there is none in this format.

    An empty box, as in two solutions of MATH, gives "".
    """
    if value is None or isinstance(value, (bool, list, dict)):
        raise ValueError(f"expected text or a number, not {value!r}")
    match answer_format:
        case "plain":
            answer = _plain(value)
        case "boxed":
            content = last_boxed(str(value))
            if content is None:
                raise ValueError("no terminated \\boxed{...} in the solution")
            answer = content
        case "gsm8k":
            _, mark, tail = str(value).rpartition("####")
            if not mark:
                raise ValueError("no #### in the solution")
            number = tail.strip()
            if not NUMBER.fullmatch(number):
                raise ValueError(f"expected a number after ####, not {number!r}")
            answer = number.replace(",", "")
    written = str(value) if answer_format == "plain" else answer  # a solution has other lines
    lost = doubtful_layout(written)
    if lost is not None:
        raise ValueError(lost)
    return require_answer(answer)


def _plain(value: object) -> str:
    """Write 142.0 as "142": some publishers store integers as floats."""
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{value} is not a finite number")
        value = int(value) if value.is_integer() else written_out(value)
    answer = str(value).strip()
    if not answer:
        raise ValueError("the answer is empty")
    return answer


def _text(value: object, kinds: tuple[type, ...] = (str, int, float)) -> str:
    if isinstance(value, bool) or not isinstance(value, kinds) or value != value:  # noqa: PLR0124
        raise ValueError(f"{reprlib.repr(value)} is no text")
    return str(value)


def _filled(value: object, kinds: tuple[type, ...] = (str, int, float)) -> str:
    text = "" if value is None else _text(value, kinds)
    if not text.strip():
        raise ValueError("it is empty")
    return text


def _prompt(value: object) -> str:
    return _filled(value, (str,))


def _subject(value: object) -> str | None:
    return None if value is None else _text(value)


def _json(value: object) -> object:
    return parse_json(json.dumps(value))


def _no_column(column: str, available: Sequence[str], key: str) -> str:
    return f"no column {column!r} (there are: {', '.join(available)}): set {key}"


OTHER_FORMATS = (".json", ".csv", ".parquet", ".gz")  # other files are JSONL


def is_jsonl(path: Path) -> bool:
    """Return whether each line of a file is a row, without reading it."""
    return path.suffix not in OTHER_FORMATS


def _local_rows(key: str, path: Path) -> Iterator[Row]:
    readers = {".json": _read_json, ".csv": _read_csv, ".parquet": _read_parquet}
    read = readers.get(Path(path.name.removesuffix(".gz")).suffix, _read_jsonl)
    try:
        if not path.exists():
            raise ProblemError(f"{path}: cannot be read (No such file): correct {key}")
        yield from read(path)
    except ProblemError:
        raise
    except Exception as error:  # gzip's, pandas', pyarrow's or datasets'
        cause = error.__cause__ if isinstance(error.__cause__, Exception) else error
        raise ProblemError(f"{path}: cannot be read ({first_line(cause)}): correct the file or {key}") from None


def _read_jsonl(path: Path) -> Iterator[Row]:
    try:
        for number, row in read_rows(path):
            yield f"{path}, line {number}", row
    except ValueError as error:
        raise ProblemError(str(error)) from None


def _read_json(path: Path) -> Iterator[Row]:
    """Read a list of objects, or an object a line."""
    with open_given(path) as file:
        text = file.read().decode("utf-8-sig")
    if not text.lstrip().startswith("["):
        yield from _read_jsonl(path)
        return
    for number, row in enumerate(parse_json(text), 1):
        if not isinstance(row, dict):
            raise ProblemError(
                f"{path}, row {number}: expected a JSON object, not {type(row).__name__}: write a list of objects"
            )
        yield f"{path}, row {number}", row


def _read_parquet(path: Path) -> Iterator[Row]:
    import datasets

    datasets.disable_progress_bars()
    with TemporaryDirectory() as cache:  # the user's cache would return a file as it was
        rows = datasets.Dataset.from_parquet(str(path), cache_dir=cache, keep_in_memory=True)
    for number, row in enumerate(rows, 1):
        yield f"{path}, row {number}", row


def _read_csv(path: Path) -> Iterator[Row]:
    import pandas as pd

    try:
        frame = pd.read_csv(
            path,
            header=None,  # below a header, pandas reads longer rows one column off
            dtype=str,  # an answer may be 007 or NA
            keep_default_na=False,
            encoding="utf-8-sig",
            low_memory=False,  # in parts, pandas forgets the number of columns
        )
    except pd.errors.ParserError as error:
        raise ProblemError(
            f"{path}: {first_line(error)}: put quotes around texts that have a comma or quotes"
        ) from None
    names, *rows = frame.to_numpy().tolist()
    for name in names:
        if name and names.count(name) > 1:
            raise ProblemError(f"{path}: several columns are named {name!r}: rename or remove all but one")
    for number, row in enumerate(rows, 1):
        yield f"{path}, row {number}", dict(zip(names, row, strict=True))


def _hub_rows(key: str, source: HubProblems) -> Iterator[Row]:
    for number, row in enumerate(_load_from_hub(key, source)):
        yield f"{source.id}, split {source.split}, row {number}", row


def _load_from_hub(key: str, source: HubProblems) -> Dataset:
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
    # Without a network `datasets` silently uses the newest cached revision.
    for cached in {Path(file["filename"]).parent.name for file in dataset.cache_files}:
        if COMMIT.fullmatch(cached) and cached != source.revision:
            raise ProblemError(
                f"{key}.revision: the Hub is out of reach and the newest copy of {source.id} in the cache is {cached}: "
                f"connect this machine to the Hub, pin that revision, {LOCAL_WAY_OUT}"
            )
    return dataset


def _hub_message(key: str, source: HubProblems, error: Exception) -> str:
    reason = first_line(error)
    lowered = reason.lower()
    if "gated" in lowered:
        fix = f"ask for access on the data set's page and log in with `hf auth login`, change {key}.id"
    elif "revision" in lowered:
        fix = f"correct {key}.revision"
    elif isinstance(error, ConnectionError):
        fix = "connect this machine to the Hub, unset HF_HUB_OFFLINE"
    elif "split" in lowered:
        fix = f"correct {key}.split"
    elif "config" in lowered:
        fix = f"correct {key}.subset"
    else:
        fix = f"correct {key}.id, {key}.subset or {key}.split"
    return f"{key}: cannot load {source.id} from the Hub ({reason}): {fix}, {LOCAL_WAY_OUT}"
