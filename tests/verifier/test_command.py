"""`g2d verify` on files."""

from __future__ import annotations

import json

import pytest

from g2d.cli import main
from g2d.verifier import command

ROWS = [
    {"answer": "5", "completion": r"\boxed{5}", "id": "a"},
    {"answer": "1/2", "completion": r"\boxed{0.5}", "finish_reason": "stop"},
    {"answer": "5", "completion": "5", "finish_reason": "length"},
    {"answer": 5, "completion": r"\boxed{5.}", "finish_reason": None},
    {"answer": "5", "completion": "\ud800\x00 \\boxed{6}", "note": "Ü"},
]


@pytest.fixture
def files(tmp_path):
    return tmp_path / "in.jsonl", tmp_path / "out.jsonl"


def run(files, *options: str) -> int:
    return main(["verify", *map(str, files), "--workers", "1", *options])


def lines(path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_rows_come_out_judged_and_in_order(files, capsys):
    files[0].write_text("\n".join(map(json.dumps, ROWS)))
    assert run(files) == 0
    added = [
        {"verdict": "correct", "reward": 1.0, "extracted_answer": "5", "second_opinion": True},
        {"verdict": "correct", "reward": 1.0, "extracted_answer": "0.5", "second_opinion": True},
        {"verdict": "truncated", "reward": 0.0, "extracted_answer": None, "second_opinion": None},
        {"verdict": "parse_error", "reward": 0.0, "extracted_answer": "5.", "second_opinion": True},
        {"verdict": "incorrect", "reward": 0.0, "extracted_answer": "6", "second_opinion": False},
    ]
    expected = [row | {"answer": str(row["answer"])} | columns for row, columns in zip(ROWS, added, strict=True)]
    assert lines(files[1]) == expected
    summary = capsys.readouterr().out
    assert "5 rows judged" in summary
    assert "40.0%  correct" in summary
    assert "second opinion disagrees: 1 parse_error" in summary


def test_malformed_rows_are_reported_and_the_rest_is_judged(files, capsys):
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
    ]
    files[0].write_bytes(b"\n".join([good, b"", *bad, good]))
    assert run(files) == 1
    assert [row["verdict"] for row in lines(files[1])] == ["correct", "correct"]
    captured = capsys.readouterr()
    reported = [line for line in captured.err.splitlines() if line.startswith(str(files[0]))]
    assert [int(line.removeprefix(f"{files[0]}:").partition(":")[0]) for line in reported] == list(range(3, 12))
    assert '"answer" is missing' in reported[2]
    assert "2 rows judged, 9 malformed" in captured.out


def test_a_file_is_read_in_chunks(files, monkeypatch):
    monkeypatch.setattr(command, "CHUNK_ROWS", 2)
    files[0].write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    assert run(files) == 0
    assert len(lines(files[1])) == len(ROWS)
    with open(files[0], "rb") as source:
        assert [len(chunk) for chunk in command.chunks(source)] == [2, 2, 1]


def test_an_empty_file(files, capsys):
    files[0].write_text("")
    assert run(files) == 0
    assert files[1].read_text() == ""
    assert "0 rows judged" in capsys.readouterr().out


def test_input_and_output_may_be_one_file(files):
    files[0].write_text(json.dumps(ROWS[0]))
    assert run((files[0], files[0])) == 0
    assert lines(files[0])[0]["verdict"] == "correct"


def test_a_missing_file_is_one_line(files, capsys):
    assert run(files) == 2
    assert not files[1].exists()
    assert capsys.readouterr().err == f"g2d verify: [Errno 2] No such file or directory: '{files[0]}'\n"


def test_nothing_is_left_of_an_interrupted_run(files, monkeypatch):
    files[0].write_text(json.dumps(ROWS[0]))
    files[1].write_text("before")

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(command.Verifier, "verify", interrupt)
    assert run(files) == 130
    assert files[1].read_text() == "before"
    assert sorted(path.name for path in files[0].parent.iterdir()) == ["in.jsonl", "out.jsonl"]


@pytest.mark.parametrize("option", [("--workers", "0"), ("--deadline", "-1"), ("--workers", "many")])
def test_options_are_checked(files, option, capsys):
    with pytest.raises(SystemExit, match="2"):
        run(files, *option)
    assert "invalid positive" in capsys.readouterr().err
