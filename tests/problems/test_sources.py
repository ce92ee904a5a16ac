"""Loading problems: one normaliser for every source, and messages that name place, key and fix."""

import gzip
import json
import re
import subprocess
import sys
from dataclasses import replace

import pandas as pd
import pytest

from g2d.problems.problem import Problem, read_problems, write_problems
from g2d.problems.problem_keys import HELD_OUT, OPEN_ENDED, Fields, HubProblems, LocalProblems, SyntheticProblems
from g2d.problems.sources import ProblemError, load_problems, parse_level

PINNED, OTHER = "b" * 40, "a" * 40
FIRST = {"uid": "a/1", "problem": "What is 1+1?", "solution": r"\boxed{2}", "level": "Level 1", "type": "Algebra"}
ROWS = [FIRST, FIRST | {"uid": "a/2", "problem": "2+2?", "solution": r"\boxed{3} \boxed{4}", "level": "Level ?"}]
FIELDS = Fields(prompt="problem", answer="solution", level="level", subject="type", id="uid")


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path, monkeypatch):
    """Paths of sources are relative to the working directory."""
    monkeypatch.chdir(tmp_path)


def write(path, rows):
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")


def load(folder, rows, name="math", fields=FIELDS, answer_format="boxed"):
    write(folder / "rows.jsonl", rows)
    source = LocalProblems(source="local", path="rows.jsonl", fields=fields, answer_format=answer_format)
    return load_problems(name, source)


def test_local_rows_become_problems(tmp_path):
    first, second = load(tmp_path, ROWS)
    assert first == Problem("a/1", "What is 1+1?", "2", 1, "Algebra", "local:rows.jsonl")
    assert (second.answer, second.level) == ("4", None)


def test_rows_without_id_level_and_subject(tmp_path):
    rows = [{"q": "1+1?", "a": 2}]
    [problem] = load(tmp_path, rows, fields=Fields(prompt="q", answer="a"), answer_format="plain")
    assert (problem.problem_id, problem.answer, problem.level, problem.subject) == ("math-00000", "2", None, None)


ROWS_OF_FILE = [{"problem": "1+1?", "answer": "007", "level": "2"}, {"problem": "2+2?", "answer": "NA", "level": ""}]


def write_as(name):
    frame = pd.DataFrame(ROWS_OF_FILE)
    if name.startswith("rows.json"):
        frame.to_json(name, orient="records", lines="jsonl" in name)
    elif name.startswith("rows.csv"):
        frame.to_csv(name, index=False)
    else:
        frame.to_parquet(name)
    return LocalProblems(source="local", path=name, fields={"level": "level"})


@pytest.mark.parametrize("name", ["rows.json", "rows.jsonl.gz", "rows.csv", "rows.csv.gz", "rows.parquet"])
def test_other_formats_have_the_same_problems(name):
    first, second = load_problems("sums", write_as(name))
    assert (first.prompt, first.answer, first.level) == ("1+1?", "007", 2)
    assert (second.prompt, second.answer, second.level) == ("2+2?", "NA", None)


TYPED_ROWS = [  # Arrow would give each column one type
    {"problem": "When?", "answer": "2020-01-01", "about": {"page": 1}},
    {"problem": "How many?", "answer": 9007199254740993, "about": {"page": "x", "line": 2}},
    {"problem": "How much?", "answer": 2.5, "about": None},
]


@pytest.mark.parametrize("name", ["rows.json", "rows.json.gz", "rows.jsonl.gz", "list.json", "list.json.gz"])
@pytest.mark.parametrize("rows", [TYPED_ROWS[:1], TYPED_ROWS[1:], TYPED_ROWS], ids=["date", "numbers", "all"])
def test_json_has_the_same_problems_in_every_layout(tmp_path, name, rows):
    write(tmp_path / "rows.jsonl", rows)
    text = json.dumps(rows, indent=2) if name.startswith("list") else (tmp_path / "rows.jsonl").read_text()
    content = text.encode("utf-8-sig")
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    expected, problems = [
        load_problems("pool", LocalProblems(source="local", path=path, fields={"metadata": "about"}))
        for path in ("rows.jsonl", name)
    ]
    assert [replace(problem, source="") for problem in problems] == [replace(known, source="") for known in expected]
    assert problems[0].answer == str(rows[0]["answer"])


@pytest.mark.parametrize(("name", "place"), [("rows.json", "row"), ("rows.json.gz", "row"), ("rows.jsonl.gz", "line")])
def test_a_row_that_is_no_object_is_named_in_every_layout(tmp_path, name, place):
    rows = [FIRST, ["a list"]]
    text = json.dumps(rows) if place == "row" else "\n".join(map(json.dumps, rows))
    content = text.encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    with pytest.raises(ProblemError, match=rf"{name}, {place} 2: expected a JSON object, not list: write"):
        load_problems("pool", LocalProblems(source="local", path=name, fields=FIELDS, answer_format="boxed"))


@pytest.mark.parametrize("name", ["rows.json", "rows.jsonl.gz", "rows.csv.gz", "rows.parquet"])
def test_a_broken_file_of_another_format_is_named(tmp_path, name):
    source = write_as(name)
    content = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(content[: len(content) // 2])
    with pytest.raises(ProblemError, match=rf"{name}: cannot be read .*correct the file or benchmarks.sums.path"):
        load_problems("sums", source)


@pytest.mark.parametrize(("first", "line"), [("If 1,2 what,3", 2), ("1+1?,2", 3)])
def test_a_row_of_csv_with_a_comma_too_many_is_refused(tmp_path, first, line):
    (tmp_path / "rows.csv").write_text(f"problem,answer\n{first}\nIf 2,3 what,5\n")
    message = rf"rows.csv: .*Expected 2 fields in line {line}, saw 3.*: put quotes around texts"
    with pytest.raises(ProblemError, match=message) as error:
        load_problems("pool", LocalProblems(source="local", path="rows.csv"))
    assert "\n" not in str(error.value)


def test_a_row_of_csv_may_end_early(tmp_path):
    """Also far behind the header: pandas reads a large file in parts, shorter ones of a file with many columns."""
    header = ["problem", "answer", "level", *map(str, range(97))]
    rows = [f"What is {i} + {i}?,{2 * i}" for i in range(20_000)]
    (tmp_path / "rows.csv").write_text("\n".join([",".join(header), *rows, "1 + 2?,3,4"]))
    problems = load_problems("pool", LocalProblems(source="local", path="rows.csv", fields={"level": "level"}))
    assert (problems[0].level, problems[-1].level) == (None, 4)


def test_csv_columns_have_distinct_names(tmp_path):
    (tmp_path / "rows.csv").write_text("problem,answer,answer,,\n1+1?,2,3,,\n")
    with pytest.raises(ProblemError, match=r"rows.csv: several columns are named 'answer': rename or remove"):
        load_problems("pool", LocalProblems(source="local", path="rows.csv"))


def test_a_missing_file_of_another_format_names_the_key():
    with pytest.raises(ProblemError, match=r"absent.parquet: cannot be read \(No such file\): correct pool.path"):
        load_problems("pool", LocalProblems(source="local", path="absent.parquet"))


GSM8K = ["He has 2 + 3 = 5.\n#### 5", "It is 7.\n#### 7", "9"]
SOLVED = [r"So it is $\boxed{5}$.", r"\boxed{7}", "9"]
SEVERAL_LINES = ["2 + 3\n= 5", "7\n8", "9"]


def rows_with(answers):
    return [{"problem": f"{i}?", "answer": answer} for i, answer in enumerate(answers)]


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        (GSM8K, "2 of 3 answers in column 'answer' contain ####: set benchmarks.math.answer_format: gsm8k"),
        (SOLVED, r"2 of 3 answers in column 'answer' contain \boxed: set benchmarks.math.answer_format: boxed"),
        (SEVERAL_LINES, "2 of 3 answers in column 'answer' have several lines: name the column of the final answer in"),
    ],
)
def test_solutions_are_no_answers_unless_the_whole_text_is_one(tmp_path, answers, message):
    rows = rows_with(answers)
    with pytest.raises(ProblemError, match=re.escape(message)):
        load(tmp_path, rows, fields=Fields(), answer_format=None)
    problems = load(tmp_path, rows, fields=Fields(), answer_format="plain")
    assert pd.DataFrame(problems)["answer"].tolist() == answers
    assert load(tmp_path, rows, name=OPEN_ENDED, fields=Fields(), answer_format=None)


def test_a_few_answers_may_look_like_solutions(tmp_path):
    rows = rows_with(["#### 5", "7", "9"])
    assert load(tmp_path, rows, fields=Fields(), answer_format=None)[0].answer == "#### 5"


def test_a_pool_may_repeat_a_question_in_another_layout_with_the_same_answer(tmp_path):
    first = {"problem": "Find $x^{2}$.", "answer": r"\dfrac{1}{2}"}
    again = {"problem": r"Find \(x^2\)", "answer": r"\frac12"}
    assert len(load(tmp_path, [first, again], name="pool", fields=Fields(), answer_format=None)) == 2
    with pytest.raises(ProblemError, match=r"line 2: asks what .*line 1 asks, but its reference answer is '3'"):
        load(tmp_path, [first, again | {"answer": "3"}], name="pool", fields=Fields(), answer_format=None)


def test_a_row_may_lack_its_level_and_subject(tmp_path):
    bare = {"uid": "a/3", "problem": "3?", "solution": r"\boxed{3}"}
    problem = load(tmp_path, [*ROWS, bare])[2]
    assert (problem.level, problem.subject) == (None, None)


def test_questions_are_their_own_clusters_unless_a_column_has_them(tmp_path):
    rows = [*ROWS, FIRST | {"uid": "a/3", "problem": "3?"}]
    assert pd.DataFrame(load(tmp_path, rows))["cluster"].tolist() == ["a/1", "a/2", "a/3"]
    rows = [rows[0] | {"story": 7}, rows[1] | {"story": "b"}, rows[2] | {"story": 7}]
    problems = load(tmp_path, rows, fields=FIELDS.model_copy(update={"cluster": "story"}))
    assert pd.DataFrame(problems)["cluster"].tolist() == ["7", "b", "7"]
    write_problems(tmp_path / "problems.jsonl", problems)
    assert read_problems(tmp_path / "problems.jsonl") == problems


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ("typo", r"rows.jsonl, line 1: no column 'typo' .*: set benchmarks.math.fields.cluster"),
        ("empty", r"line 1: column 'empty': it is empty: correct the row or benchmarks.math.fields.cluster"),
        ("same", "column 'same': all problems are in one cluster: name another .* benchmarks.math.fields.cluster"),
    ],
)
def test_a_column_without_clusters_is_refused(tmp_path, column, message):
    unclustered = {"empty": None, "same": "MATH"}
    rows = [ROWS[0] | unclustered, ROWS[1] | unclustered]
    with pytest.raises(ProblemError, match=message):
        load(tmp_path, rows, fields=FIELDS.model_copy(update={"cluster": column}))


def test_byte_order_mark_and_blank_lines_are_tolerated(tmp_path):
    text = "\ufeff" + json.dumps(ROWS[0]) + "\n\n" + json.dumps(ROWS[1]) + "\n \n"
    (tmp_path / "rows.jsonl").write_text(text, encoding="utf-8")
    source = LocalProblems(source="local", path="rows.jsonl", fields=FIELDS, answer_format="boxed")
    assert load_problems("math", source) == load(tmp_path, ROWS)


AGAIN = FIRST | {"uid": "a/3", "problem": "What is  $1 + 1$?"}


@pytest.mark.parametrize("name", ["math", HELD_OUT])
def test_a_benchmark_that_asks_a_question_twice_is_refused_with_its_rows(tmp_path, name):
    """In another layout and with another reference too: neither question is independent of the other."""
    rows = [*ROWS, AGAIN, FIRST | {"uid": "a/4", "solution": r"\boxed{3}"}]
    twice = "2 of 4 rows repeat a question, .* \\(rows.jsonl, line 3 = rows.jsonl, line 1, rows.jsonl, line 4 = "
    with pytest.raises(ProblemError, match=twice):
        load(tmp_path, rows, name=name)


def test_the_pool_may_repeat_a_question_but_not_with_another_reference(tmp_path):
    same = FIRST | {"uid": "a/3", "problem": "What is\n1+1?"}
    assert len(load(tmp_path, [*ROWS, same], name="pool")) == 3
    with pytest.raises(ProblemError, match=r"line 3: asks what rows.jsonl, line 1 asks, .* is '3', not '2': keep one"):
        load(tmp_path, [*ROWS, same | {"solution": r"\boxed{3}"}], name="pool")
    assert len(load(tmp_path, [*ROWS, same], name=OPEN_ENDED)) == 3  # no reference, no statistics


def test_levels():
    for value in (3, "3", "Level 3", "level 3 ", 3.0):
        assert parse_level(value) == 3
    for value in ("Level ?", "?", "", None):
        assert parse_level(value) is None


@pytest.mark.parametrize("value", ["hard", "Level three", 2.5, True, -1, [3]])
def test_not_a_level(value):
    with pytest.raises(ValueError, match="is not a level"):
        parse_level(value)


NO_BOX = "line 2: column 'solution': no terminated .* benchmarks.math.answer_format"
NO_COLUMN = r"rows.jsonl, line 1: no column 'uid' \(there are: problem, answer\): set benchmarks.math.fields.id"
NO_LEVEL = "line 1: column 'level': 'hard' is not a level .* benchmarks.math.fields.level"
REPEATED = "line 2: id 'a/1' was already used at .*line 1: make the ids unique, or drop benchmarks.math.fields.id"


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"problem": "?", "answer": 1}], NO_COLUMN),
        ([ROWS[0] | {"problem": " "}], "line 1: column 'problem': it is empty.* benchmarks.math.fields.prompt"),
        ([ROWS[0] | {"uid": None}], "line 1: column 'uid': it is empty"),
        ([ROWS[0], ROWS[1] | {"solution": "no box"}], NO_BOX),
        ([ROWS[0] | {"solution": None}], "line 1: column 'solution': expected text or a number, not None"),
        ([ROWS[0] | {"level": "hard"}], NO_LEVEL),
        ([ROWS[0], ROWS[0]], REPEATED),
        ([], "benchmarks.math: local:rows.jsonl holds no rows"),
        ([["a list"]], "line 1: expected a JSON object"),
    ],
)
def test_a_bad_row_is_named(tmp_path, rows, message):
    with pytest.raises(ProblemError, match=message) as error:
        load(tmp_path, rows)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("column", ["problem", "solution", "type", "uid"])
@pytest.mark.parametrize("value", [[{"role": "user", "content": "1+1?"}], {"text": "1"}, True, float("nan")])
def test_a_value_that_is_no_text_is_refused_with_its_line(tmp_path, column, value):
    """Not shown to a policy as Python would print it."""
    with pytest.raises(ProblemError, match=rf"rows\.jsonl, line 2: column '{column}': .*(fields|answer_format)"):
        load(tmp_path, [ROWS[0], ROWS[1] | {column: value}])


@pytest.mark.parametrize("column", ["problem", "solution", "type", "uid"])
def test_a_lost_backslash_is_refused_with_its_line(tmp_path, column):
    r"""Also at the start of a box, where it would be taken for a space."""
    row = ROWS[1] | {column: "\\boxed{\frac{1}{3}}"}
    wanted = rf"rows\.jsonl, line 2: column '{column}': a form feed before 'rac', perhaps \\frac: .* write \\\\frac"
    with pytest.raises(ProblemError, match=wanted):
        load(tmp_path, [ROWS[0], row])


def test_a_line_break_that_may_be_a_command_is_a_warning(tmp_path, caplog):
    rows = [ROWS[0], ROWS[1] | {"problem": "Is 1 \neq 2?", "solution": "\nu = \\boxed{5}"}]
    assert load(tmp_path, rows)[1].prompt == "Is 1 \neq 2?"
    assert r"rows.jsonl, line 2: a line break before 'eq', perhaps \neq: between quotes" in caplog.text
    caplog.clear()
    load(tmp_path, [ROWS[0], ROWS[1] | {"problem": r"Is 1 \neq 2?"}])
    assert not caplog.records


@pytest.mark.parametrize("answer", ["3 \times 5", "\nu", "x \neq 1"])
def test_a_reference_with_such_a_line_break_or_tab_is_refused(tmp_path, answer):
    with pytest.raises(ProblemError, match=r"line 1: column 'solution': a (tab|line break) before '\w+', perhaps"):
        load(tmp_path, [ROWS[0] | {"solution": answer}], answer_format="plain")
    with pytest.raises(ProblemError, match=r"line 1: column 'solution': a (tab|line break) before '\w+', perhaps"):
        load(tmp_path, [ROWS[0] | {"solution": rf"\boxed{{2{answer}}}"}])


def test_numbers_are_answers_ids_and_subjects_but_no_prompts(tmp_path):
    row = {"uid": 7, "problem": "3?", "solution": 3, "type": 12.5, "level": 3}
    (problem,) = load(tmp_path, [row], answer_format="plain")
    assert (problem.problem_id, problem.answer, problem.subject) == ("7", "3", "12.5")
    with pytest.raises(ProblemError, match=r"line 1: column 'problem': 3 is no text"):
        load(tmp_path, [row | {"problem": 3}], answer_format="plain")


@pytest.mark.parametrize("field", ["level", "subject"])
def test_an_optional_column_that_no_row_has_is_a_typo(tmp_path, field):
    with pytest.raises(ProblemError, match=f"no column 'typo' .*uid, problem.*: set pool.fields.{field}"):
        load(tmp_path, ROWS, name="pool", fields=FIELDS.model_copy(update={field: "typo"}))


@pytest.mark.parametrize(
    ("name", "key"), [("pool", "pool"), (OPEN_ENDED, "open_ended.pool"), (HELD_OUT, "open_ended.held_out")]
)
def test_a_missing_file_names_the_key(tmp_path, name, key):
    source = LocalProblems(source="local", path="absent.jsonl")
    with pytest.raises(ProblemError, match=rf"absent.jsonl: cannot be read \(No such file.*correct {key}.path"):
        load_problems(name, source)


def test_too_many_synthetic_problems_names_the_key():
    source = SyntheticProblems(source="synthetic", family="arithmetic", split="test", n=100_000)
    with pytest.raises(ProblemError, match=r"benchmarks.sums.n: arithmetic, level 1: 20000 different test problems"):
        load_problems("sums", source)


# --------------------------------------------------------------------------------------------------------------- Hub


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """The Hub as a local folder: the real `datasets` reads it, only the download is replaced."""
    import datasets

    folder = tmp_path / "data"
    folder.mkdir()
    write(folder / "train.jsonl", ROWS)
    real = datasets.load_dataset
    requested = []

    def load_dataset(repository, subset=None, *, split, revision):
        requested.append((repository, subset, split, revision))
        return real(str(folder), split=split, cache_dir=str(tmp_path / "cache"))

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    return requested


def hub_source(**changes):
    keys = {"id": "some/math", "revision": PINNED, "split": "train", "fields": FIELDS, "answer_format": "boxed"}
    return HubProblems.model_validate({"source": "hub"} | keys | changes)


def test_hub_rows_become_the_same_problems_as_local_ones(hub, tmp_path):
    problems = load_problems("math", hub_source(subset="default"))
    assert hub == [("some/math", "default", "train", PINNED)]
    for problem, local in zip(problems, load(tmp_path, ROWS), strict=True):
        assert problem == replace(local, source=f"hub:some/math@{PINNED}")


NO_SPLIT = r'cannot load some/math from the Hub \(Unknown split "test".*: correct benchmarks.math.split, or save'
NO_HUB_COLUMN = r"split train, row 0: no column 'question' \(there are: uid, .*\): set benchmarks.math.fields.prompt"


@pytest.mark.parametrize(
    ("changes", "message"), [({"split": "test"}, NO_SPLIT), ({"fields": Fields(prompt="question")}, NO_HUB_COLUMN)]
)
def test_hub_mistakes_name_the_key(hub, changes, message):
    with pytest.raises(ProblemError, match=message) as error:
        load_problems("math", hub_source(**changes))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "fix"),
    [
        ("Dataset 'x' is a gated dataset on the Hub. You must be authenticated to access it.", "ask for access"),
        ("Revision 'x' doesn't exist for dataset 'x' on the Hub.", "correct pool.revision"),
        ("Dataset 'x' doesn't exist on the Hub or cannot be accessed.", "correct pool.id"),
        ("BuilderConfig 'x' not found. Available: ['main', 'socratic']", "correct pool.subset"),
        ("", "correct pool.id"),
    ],
)
def test_errors_of_the_hub_are_translated(monkeypatch, text, fix):
    import datasets
    from datasets.exceptions import DatasetNotFoundError

    def refuse(*_args, **_kwargs):
        raise DatasetNotFoundError(text)

    monkeypatch.setattr(datasets, "load_dataset", refuse)
    with pytest.raises(ProblemError, match=rf"pool: cannot load some/math .*{fix}.*, or save the rows as JSONL"):
        load_problems("pool", hub_source())


def test_a_folder_may_not_pose_as_a_hub_data_set(tmp_path, monkeypatch):
    (tmp_path / "some" / "math").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ProblemError, match=r"pool.id: some/math is also a folder here"):
        load_problems("pool", hub_source())


OFFLINE = """
from g2d.problems.problem_keys import HubProblems
from g2d.problems.sources import load_problems
source = HubProblems(source="hub", id="some/math", revision="{revision}", split="train")
print([problem.answer for problem in load_problems("pool", source)])
"""


def run_offline(cache, revision):
    return subprocess.run(
        [sys.executable, "-c", OFFLINE.format(revision=revision)],
        env={"HF_HUB_OFFLINE": "1", "HF_HOME": str(cache), "PYTHONPATH": ":".join(sys.path), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )


def test_without_a_network_the_message_says_so(tmp_path):
    run = run_offline(tmp_path, PINNED)
    last = run.stderr.strip().splitlines()[-1]
    assert "ProblemError: pool: cannot load some/math from the Hub" in last
    assert "unset HF_HUB_OFFLINE, or save the rows as JSONL and use source: local" in last


def test_without_a_network_a_cached_other_revision_is_refused(tmp_path):
    # Offline, `datasets` takes the newest cached revision, not the requested one.
    from datasets.arrow_writer import ArrowWriter

    folder = tmp_path / "datasets" / "some___math" / "default" / "0.0.0" / OTHER
    folder.mkdir(parents=True)
    with ArrowWriter(path=str(folder / "math-train.arrow")) as writer:
        writer.write({"problem": "1+1?", "answer": "2"})
        rows, size = writer.finalize()
    text = {"dtype": "string", "_type": "Value"}
    info = {
        "builder_name": "parquet",
        "dataset_name": "math",
        "config_name": "default",
        "version": {"version_str": "0.0.0", "major": 0, "minor": 0, "patch": 0},
        "splits": {"train": {"name": "train", "num_bytes": size, "num_examples": rows, "dataset_name": "math"}},
        "features": {"problem": text, "answer": text},
    }
    (folder / "dataset_info.json").write_text(json.dumps(info))

    assert run_offline(tmp_path, OTHER).stdout.strip() == "['2']"
    refused = run_offline(tmp_path, PINNED).stderr.strip().splitlines()[-1]
    assert f"pool.revision: the Hub is out of reach and the newest copy of some/math in the cache is {OTHER}" in refused
