"""`g2d verify IN.jsonl OUT.jsonl`: judge completions from any source.

An input row has `answer`, `completion` and perhaps `finish_reason`; with --verifier, `completion` and what the file
reads. The output row adds `verdict`, `reward` and `extracted_answer`. "-" is standard input or output. OUT.jsonl is
replaced after the last row and may be IN.jsonl; if a row is malformed, IN.jsonl is kept so that the row is not lost.
A row whose answer is `NaN`, `Infinity` or the text "nan" is malformed.
"""

from __future__ import annotations

import argparse
import codecs
import json
import math
import os
import re
import sys
from collections import Counter
from itertools import count
from typing import Any

from tqdm import tqdm

from g2d.jobs.files import output, parse_line, require_replaceable
from g2d.lost_backslashes import require_backslashes
from g2d.plain import plain, say
from g2d.settings.arguments import at_least
from g2d.verifier.extraction import require_answer, written_out
from g2d.verifier.pool import Limits, default_workers
from g2d.verifier.verifier import Reference, Verifier
from g2d.verifier.verifier_keys import PythonVerifier, mistake_in

ADDED = ("verdict", "reward", "extracted_answer")
Row = dict[str, Any]  # a row of the user's file
CHUNK_BYTES = 2**20
MAX_LINE = 64 * 2**20  # bytes; then it is no JSONL


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "verify", help="judge the completions in a JSONL file", description=(__doc__ or "").partition("\n\n")[2]
    )
    parser.add_argument("input", metavar="IN.jsonl")
    parser.add_argument("output", metavar="OUT.jsonl")
    parser.add_argument(
        "--workers", type=at_least(1, int), default=default_workers(), help="default: all cores granted"
    )
    parser.add_argument(
        "--deadline",
        type=at_least(0, above=True),
        default=Limits().deadline_s,
        metavar="S",
        help="CPU seconds per answer",
    )
    parser.add_argument(
        "--verifier", metavar="FILE.py", help="a file with judge(problem, completion); problem: the row"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    if arguments.verifier is not None:
        mistake = mistake_in(PythonVerifier(source="python", file=arguments.verifier))
        if mistake is not None:
            raise ValueError(mistake)
    malformed = 0
    numbers = count(1)
    verdicts: Counter[str] = Counter()
    limits = Limits(deadline_s=arguments.deadline)
    piped = arguments.input == "-"
    printed = arguments.output == "-"
    place = None if printed else require_replaceable(arguments.output)  # fail before reading any input
    in_place = not piped and place is not None and place.exists() and place.samefile(arguments.input)
    with (
        open(0 if piped else arguments.input, "rb", closefd=not piped) as source,
        output(arguments.output) as target,
        Verifier(arguments.workers, limits, file=arguments.verifier, fatal=()) as verifier,
        tqdm(total=os.fstat(source.fileno()).st_size or None, unit="B", unit_scale=True, disable=None) as progress,
    ):
        while chunk := source.readlines(CHUNK_BYTES):
            rows = []
            for line, number in zip(chunk, numbers, strict=False):
                if not line.strip():
                    continue
                if number == 1 and line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                    raise ValueError(f"{arguments.input}: UTF-16 instead of UTF-8: convert the file")
                try:
                    rows.append(parse_row(line) if verifier.file is None else parse_problem(line))
                except ValueError as error:
                    malformed += 1
                    progress.write(plain(f"{arguments.input}:{number}: {error}"), file=sys.stderr)
            verifications = verifier.verify(
                [(_reference(row, verifier), row["completion"]) for row in rows],
                [row.get("finish_reason") for row in rows],
            )
            for row, verification in zip(rows, verifications, strict=True):
                target.write(dump(row | {name: getattr(verification, name) for name in ADDED}) + "\n")
            verdicts.update(verification.verdict for verification in verifications)
            progress.update(sum(map(len, chunk)))
        if malformed and not verdicts:
            raise ValueError(f"{arguments.input}: no row of {malformed} can be judged: give JSONL, as text")
        if malformed and in_place:
            raise ValueError(
                f"{arguments.input}: stays as it is, or {malformed} malformed rows would be lost: correct them or name "
                "another output"
            )
    say(summary(verdicts, malformed), file=sys.stderr if printed else sys.stdout)
    return 1 if malformed else 0


def parse_problem(line: bytes) -> Row:
    """Return a row with a completion; a ValueError has reason and fix."""
    if len(line) > MAX_LINE:
        raise ValueError(f"longer than {MAX_LINE >> 20} MiB: write one JSON object a line")
    row = parse_line(line, surrogates=True)
    _require_text(row, "completion", by_model=True)
    if not isinstance(row.get("finish_reason"), (str, type(None))):
        raise ValueError(f'"finish_reason" must be a string, not {json.dumps(row["finish_reason"])[:40]}')
    return row


def parse_row(line: bytes) -> Row:
    """Return a row with an answer and a completion; a ValueError has reason and fix."""
    row = parse_problem(line)
    if isinstance(row.get("answer"), (int, float)) and not isinstance(row["answer"], bool):
        if isinstance(row["answer"], float) and not math.isfinite(row["answer"]):
            raise ValueError(f'"answer" is {row["answer"]}, which is no number: write the answer or leave the row out')
        row["answer"] = written_out(row["answer"])
    _require_text(row, "answer")
    try:
        require_answer(row["answer"])
    except ValueError as error:
        raise ValueError(f'"answer": {error}: write the answer or leave the row out') from None
    return row


def _require_text(row: Row, column: str, *, by_model: bool = False) -> None:
    if column not in row:
        raise ValueError(f'"{column}" is missing')
    if not isinstance(row[column], str):
        raise ValueError(f'"{column}" must be a string, not {json.dumps(row[column])[:40]}')
    try:
        require_backslashes(row[column], by_model=by_model)
    except ValueError as error:
        raise ValueError(f'"{column}": {error}') from None


def _reference(row: Row, verifier: Verifier) -> Reference:
    """Return the answer, or for a verifier in Python the row without its completion."""
    if verifier.file is None:
        return str(row["answer"])
    return {name: value for name, value in row.items() if name not in ("completion", "finish_reason")}


def dump(row: Row) -> str:
    """Return a line of JSON, in ASCII only if UTF-8 cannot encode a lone surrogate."""
    text = json.dumps(row, ensure_ascii=False)
    return json.dumps(row) if re.search("[\ud800-\udfff]", text) else text


def summary(verdicts: Counter[str], malformed: int) -> str:
    total = verdicts.total()
    first = f"{total} rows judged"
    if malformed:
        first += f", {malformed} malformed"
    lines = [first]
    for verdict, n in verdicts.most_common():
        lines.append(f"{n:>9}  {n / total:6.1%}  {verdict}")
    return "\n".join(lines)
