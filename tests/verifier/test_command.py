"""`g2d verify` on files."""

from __future__ import annotations

import gzip
import json
import math
import re
import subprocess
import sys

import pytest

from g2d.cli import main
from g2d.verifier import Verifier, verify_command

ROWS = [
    {"answer": "5", "completion": r"\boxed{5}", "id": "a"},
    {"answer": "1/2", "completion": r"\boxed{0.5}", "finish_reason": "stop"},
    {"answer": "5", "completion": "5", "finish_reason": "length"},
    {"answer": 5, "completion": r"\boxed{five}", "finish_reason": None},
    {"answer": "5", "completion": "\ud800\x00 \\boxed{6}", "note": "Ü"},
    {"answer": "5", "completion": r"\boxed{nan}", "logprob": -math.inf},
    {"answer": r"\infty", "completion": r"\boxed{\infty}"},
    {"answer": r"-\infty", "completion": r"\boxed{-\infty}"},
    {"answer": "inf", "completion": r"\boxed{inf}"},
    {"answer": 1e-7, "completion": r"\boxed{0.0000001}"},
    {"answer": 1e16, "completion": r"\boxed{10000000000000000}"},
    {"answer": -2.5, "completion": r"\boxed{-2.5}"},
    {"answer": 7, "completion": r"\boxed{7}"},
    {"answer": 10**30, "completion": rf"\boxed{{{10**30}}}"},
]


@pytest.fixture
def files(tmp_path):
    return tmp_path / "in.jsonl", tmp_path / "out.jsonl"


def run(files, *options: str) -> int:
    return main(["verify", *map(str, files), "--workers", "1", *options])


def rows_of(path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def values(rows: list[dict], key: str) -> list:
    return [row[key] for row in rows]


@pytest.fixture
def judged(files):
    """The output for `ROWS`."""
    files[0].write_text("\n".join(map(json.dumps, ROWS)))
    assert run(files) == 0
    return rows_of(files[1])


def test_rows_come_out_in_order_and_numbers_are_written_out(judged):
    numbers = ["0.0000001", "10000000000000000", "-2.5", "7", str(10**30)]
    assert values(judged, "answer") == ["5", "1/2", "5", "5", "5", "5", r"\infty", r"-\infty", "inf", *numbers]


def test_rows_get_columns(judged):
    added = [
        {"verdict": "correct", "reward": 1.0, "extracted_answer": "5"},
        {"verdict": "correct", "reward": 1.0, "extracted_answer": "0.5"},
        {"verdict": "truncated", "reward": 0.0, "extracted_answer": None},
        {"verdict": "incorrect", "reward": 0.0, "extracted_answer": "five"},
        {"verdict": "incorrect", "reward": 0.0, "extracted_answer": "6"},
    ]
    for before, after, columns in zip(ROWS, judged, added, strict=False):
        assert after == before | {"answer": str(before["answer"])} | columns


def test_infinities_and_numbers_of_any_size_are_judged(judged):
    assert values(judged[5:], "reward") == [0] + [1] * 8


def test_other_columns_may_have_infinities(judged):
    assert judged[5]["logprob"] == -math.inf


def test_verdicts_are_counted(files, capsys):
    files[0].write_text("\n".join(map(json.dumps, ROWS)))
    assert run(files) == 0
    summary = capsys.readouterr().out
    assert "14 rows judged" in summary
    assert " 71.4%  correct" in summary


@pytest.fixture
def with_malformed_rows(files, capsys):
    """Output and reports of two good rows with 15 malformed ones between them."""
    good = json.dumps(ROWS[0]).encode()
    bad = [
        b"{",
        b"5",
        b'{"completion": "x"}',
        b'{"answer": "5"}',
        b'{"answer": null, "completion": "x"}',
        b'{"answer": "5", "completion": ["x"]}',
        b'{"answer": "5", "completion": "x", "finish_reason": 3}',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"answer": NaN, "completion": "\\\\boxed{nan}"}',
        b'{"answer": -Infinity, "completion": "x"}',
        b'{"answer": 1e999, "completion": "x"}',
        b'{"answer": " -NaN", "completion": "\\\\boxed{nan}"}',
        b'{"answer": "\\frac{1}{2}", "completion": "\\\\boxed{0.5}"}',
        b'{"answer": "0.5", "completion": "so \\boxed{0.5}"}',
    ]
    files[0].write_bytes(b"\n".join([good, b"", *bad, good]))
    assert run(files) == 1
    captured = capsys.readouterr()
    return captured.out, re.findall(rf"^{files[0]}:(.*)", captured.err, re.M)


def test_rows_beside_malformed_ones_are_judged(files, with_malformed_rows):
    summary, _ = with_malformed_rows
    assert values(rows_of(files[1]), "verdict") == ["correct", "correct"]
    assert "2 rows judged, 15 malformed" in summary


def test_each_malformed_row_is_reported_with_its_line_and_column(with_malformed_rows):
    _, reported = with_malformed_rows
    for number, line in enumerate(reported, start=3):
        assert line.startswith(f"{number}:")
    assert len(reported) == 15
    assert '"answer"' in reported[2]
    assert '"answer"' in reported[9]
    assert '"answer"' in reported[12]


def test_lost_backslashes_are_reported_with_the_command(with_malformed_rows):
    _, reported = with_malformed_rows
    assert r"""16: "answer": a form feed before 'rac', perhaps \frac:""" in reported[13]
    assert r"""17: "completion": a backspace before 'oxed', perhaps \boxed:""" in reported[14]


def test_a_byte_order_mark_is_tolerated_and_utf_16_is_one_line(files, capsys):
    files[0].write_text(json.dumps(ROWS[0]), encoding="utf-8-sig")
    assert run(files) == 0
    assert values(rows_of(files[1]), "reward") == [1]
    files[1].unlink()
    files[0].write_text(json.dumps(ROWS[0]), encoding="utf-16")
    assert run(files) == 2
    assert capsys.readouterr().err == f"g2d verify: {files[0]}: UTF-16 instead of UTF-8: convert the file\n"
    assert not files[1].exists()


@pytest.mark.parametrize("name", ["results", "results/..", "", ".", "new/", "new/.."])
def test_a_folder_as_output_is_refused_before_anything_is_read(files, name, capsys, monkeypatch):
    folder = files[0].parent
    (folder / "results").mkdir()
    (folder / "results" / "precious").touch()
    monkeypatch.chdir(folder)
    monkeypatch.setattr(verify_command, "parse_row", None)
    files[0].touch()
    assert main(["verify", str(files[0]), name]) == 2
    errors = capsys.readouterr().err
    assert "a folder" in errors
    assert errors.count("\n") == 1
    assert {*folder.rglob("*")} == {files[0], folder / "results", folder / "results/precious"}


def test_a_read_only_output_is_refused(files, capsys):
    files[0].write_text(json.dumps(ROWS[0]))
    files[1].write_text("before")
    files[1].chmod(0o444)
    assert run(files) == 2
    assert "out.jsonl: read-only" in capsys.readouterr().err
    assert files[1].read_text() == "before"


def shell(files, command):
    called = ["sh", "-c", command.replace("VERIFY", '"$0" -m g2d.cli verify'), sys.executable]
    return subprocess.run(called, cwd=files[0].parent, capture_output=True, text=True, check=True)


def test_standard_input_and_output(files):
    files[0].write_text(json.dumps(ROWS[0]) + "\n")
    done = shell(files, "cat in.jsonl | VERIFY - - --workers 1")
    assert json.loads(done.stdout)["reward"] == 1  # only the rows
    assert "1 rows judged" in done.stderr


def test_rows_are_appended_to_a_redirected_file(files):
    files[0].write_text(json.dumps(ROWS[0]) + "\n")
    shell(files, "{ echo first; VERIFY in.jsonl - --workers 1; } >> out.jsonl")
    first, row = files[1].read_text().splitlines()
    assert (first, json.loads(row)["reward"]) == ("first", 1)


def test_a_line_without_end_is_one_malformed_row(files, monkeypatch, capsys):
    monkeypatch.setattr(verify_command, "MAX_LINE", 100)
    good = json.dumps(ROWS[0])
    files[0].write_text("\n".join([good, good[:-1] + " " * 500 + "}", good.ljust(99), good.ljust(100), good]))
    assert run(files) == 1
    assert len(rows_of(files[1])) == 3
    assert re.findall(r":(\d+):.*longer than", capsys.readouterr().err) == ["2", "4"]


def test_a_file_is_read_in_chunks(files, monkeypatch):
    sizes = []
    verify = Verifier.verify

    def recorded(verifier, rows, *others):
        sizes.append(len(rows))
        return verify(verifier, rows, *others)

    monkeypatch.setattr(verify_command, "CHUNK_BYTES", 60)
    monkeypatch.setattr(Verifier, "verify", recorded)
    files[0].write_text((json.dumps(ROWS[0]) + "\n") * 5)
    assert run((files[0], files[0])) == 0  # input and output may be one file
    assert values(rows_of(files[0]), "verdict") == ["correct"] * 5
    assert sum(sizes) == 5
    assert len(sizes) > 1


def test_an_empty_file(files, capsys):
    files[0].write_text("")
    assert run(files) == 0
    assert files[1].read_text() == ""
    assert "0 rows judged" in capsys.readouterr().out


def test_judging_in_place_loses_no_malformed_row(files, capsys):
    files[0].write_text(json.dumps(ROWS[0]) + "\n{broken\n")
    files[1].symlink_to(files[0])
    before = files[0].read_text()
    for output in files:
        assert run((files[0], output)) == 2
        message = f"g2d verify: {files[0]}: stays as it is, or 1 malformed rows would be lost: "
        assert message in capsys.readouterr().err
        assert files[0].read_text() == before


@pytest.mark.parametrize(
    "content", [gzip.compress(b"{}", mtime=0), b"PAR1\x15\n\xac\xff", b'[\n {"answer": "5"}\n]', b"a,b"]
)
def test_a_file_that_is_no_jsonl_replaces_nothing(files, content, capsys):
    files[0].write_bytes(content)
    files[1].write_text("results of yesterday")
    assert run(files) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith(f"g2d verify: {files[0]}: no row of ")
    assert files[1].read_text() == "results of yesterday"


def test_a_missing_file_is_one_line(files, capsys):
    assert run(files) == 2
    assert not files[1].exists()
    assert capsys.readouterr().err == f"g2d verify: {files[0]}: No such file or directory: correct the path\n"


def test_nothing_is_left_of_an_interrupted_run(files, monkeypatch):
    files[0].write_text(json.dumps(ROWS[0]))
    files[1].write_text("before")

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Verifier, "verify", interrupt)
    assert run(files) == 130
    assert files[1].read_text() == "before"
    assert {*files[0].parent.iterdir()} == {*files}


@pytest.mark.parametrize(
    ("option", "words"),
    [
        (("--workers", "0"), "'0' is no whole number of at least 1"),
        (("--deadline", "-1"), "'-1' is no number above 0"),
        (("--workers", "many"), "'many' is no whole number of at least 1"),
        (("--workers", "2.5"), "'2.5' is no whole number of at least 1"),
    ],
)
def test_options_are_checked(files, option, words, capsys):
    with pytest.raises(SystemExit, match="2"):
        run(files, *option)
    assert words in capsys.readouterr().err
