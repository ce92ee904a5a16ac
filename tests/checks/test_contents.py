"""`g2d config check` refuses what the first jobs would refuse: contents of local problems and models."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from safetensors.torch import load_file, save_file

from g2d.cli import main
from g2d.problems.synthetic import generate
from tests.configs import MINIMAL
from tests.models import converted_policy, tiny_policy
from tests.rewards.models import reward_model

ROWS = [{"problem": f"{n} + 1", "answer": n + 1, "level": n % 3} for n in range(9)]
CONFIG = MINIMAL | {
    "models": {"mine": {"source": "local", "path": "model"}},
    "pool": {"source": "local", "path": "pool.jsonl", "fields": {"level": "level"}},
    "training_set": {"n": 3},
    **{name: {"max_completion_length": 24} for name in ("warmup", "calibration", "harvest", "evaluation")},
}


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(tiny_policy().base, "model")
    write_pool(ROWS)


def write_pool(rows: list[dict[str, Any]]) -> None:
    Path("pool.jsonl").write_text("\n".join(map(json.dumps, rows)))


def checked(capsys: pytest.CaptureFixture[str], **changes: Any) -> list[str]:
    Path("my.yaml").write_text(yaml.safe_dump(CONFIG | changes))
    status = main(["config", "check", "my.yaml"])
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("my.yaml: ")]
    assert status == bool(lines)
    return lines


def test_whole_files_are_valid(capsys: pytest.CaptureFixture[str]) -> None:
    assert checked(capsys) == []


def test_no_bar_of_progress_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    Path("my.yaml").write_text(yaml.safe_dump(CONFIG))
    assert main(["config", "check", "my.yaml"]) == 0
    assert "Loading" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ 'x' * 10**10 }}", "the chat template takes more than 2 s"),
        ("{{ raise_exception('no') }}", "chat template fails: no"),
        ("hello", "the chat template drops the user message"),
    ],
)
def test_the_template_of_a_reward_model_is_tried(
    capsys: pytest.CaptureFixture[str], template: str, message: str
) -> None:
    folder = reward_model(Path("judge"))
    (folder / "chat_template.jinja").write_text(template)
    [line] = checked(capsys, rewards={"polite": {"reward": "model", "path": "judge"}})
    assert line.startswith("my.yaml: rewards.polite: judge: ")
    assert message in line


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"answer": None}, "column 'answer': "),
        ({"answer": float("nan")}, ""),
        ({"answer": ""}, "column 'answer': the answer is empty"),
        ({"answer": True}, "column 'answer': "),
        ({"answer": [1, 2]}, "column 'answer': "),
        ({"problem": " "}, "column 'problem': it is empty"),
        ({"problem": None}, "column 'problem': it is empty"),
    ],
)
def test_a_row_without_question_or_answer_is_refused(
    capsys: pytest.CaptureFixture[str], row: dict[str, Any], message: str
) -> None:
    write_pool([*ROWS, ROWS[0] | {"problem": "new"} | row])
    [line] = checked(capsys)
    assert line.startswith(f"my.yaml: pool.jsonl, line 10: {message}")


def test_mistakes_of_all_kinds_are_reported_together(capsys: pytest.CaptureFixture[str]) -> None:
    lines = checked(
        capsys,
        training_set={"n": 10},
        evaluation={"max_completion_length": 1000},
        lora=lora("v_porj"),
        benchmarks={"own": {"source": "local", "path": "pool.jsonl"}},
    )
    keys = [
        "training_set.n=10 of mine exceeds",
        "evaluation.max_",
        "models.mine: lora.target_modules",
        "benchmarks.own",
    ]
    assert len(lines) == len(keys)
    assert all(any(line.startswith(f"my.yaml: {key}") for line in lines) for key in keys)


def test_a_missing_model_hides_no_mistake_in_data_or_verifier(capsys: pytest.CaptureFixture[str]) -> None:
    write_pool([{"problem": "1 + 1", "solution": 2, "level": 1}] * 9)
    Path("mine.py").write_text("def judge(problem, completion):\n    return 'yes'\n")
    lines = checked(
        capsys,
        models={"mine": {"source": "local", "path": "modle"}},
        verifier={"source": "python", "file": "mine.py"},
    )
    assert [line.split(": ")[1] for line in lines] == ["models.mine.path", "pool.jsonl, line 1", "verifier.file"]


def test_a_completion_that_does_not_fit_is_named_with_the_largest_value_that_does(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Problems decide: the longest of the pool takes most of the window."""
    write_pool([*ROWS, {"problem": "1 + " * 50 + "1", "answer": 51, "level": 1}])
    lines = checked(capsys, harvest={"max_completion_length": 250})
    [line] = [line for line in lines if "harvest" in line]
    largest = int(line.rpartition(" ")[2])
    assert "harvest.max_completion_length=250 leaves no room for a prompt in the 256 tokens that mine can hold" in line
    lines = checked(capsys, harvest={"max_completion_length": largest})
    assert not any("harvest" in line for line in lines)
    assert any("harvest" in line for line in checked(capsys, harvest={"max_completion_length": largest + 1}))


def test_a_level_that_no_problem_has_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    [line] = checked(capsys, calibration=CONFIG["calibration"] | {"levels": [77]})
    assert "calibration.levels: level 77 has no calibrated problems: choose from 0-2" in line


@pytest.mark.parametrize(
    ("n", "levels", "has_levels", "message"),
    [
        (3, [2], True, None),
        (4, [2], True, "4 problems asked for, but the pool has 3 at levels [2]"),
        (9, "auto", True, None),
        (10, "auto", True, "10 problems asked for, but the pool has 9 at levels [0, 1, 2]"),
        (10, "auto", False, None),  # problems without a level too
        (11, "auto", False, "11 problems asked for, but the pool has 10: lower"),
    ],
)
def test_a_training_set_that_the_pool_cannot_fill_is_refused(
    capsys: pytest.CaptureFixture[str], n: int, levels: Any, has_levels: bool, message: str | None
) -> None:
    rows = [*ROWS, {"problem": "9 + 1", "answer": 10, "level": None}]
    Path("pool.json").write_text(json.dumps(rows))
    pool = {"source": "local", "path": "pool.json", "fields": {"level": "level"} if has_levels else {}}
    calibration = CONFIG["calibration"] | {"levels": levels}
    lines = checked(capsys, pool=pool, calibration=calibration, training_set={"n": n})
    if message is None:
        assert lines == []
    else:
        [line] = lines
        assert line.startswith(f"my.yaml: training_set.n: {message}")


def without_a_layer(model: Path) -> None:
    file = model / "model.safetensors"
    weights = {name: tensor for name, tensor in load_file(file).items() if "mlp" not in name}
    save_file(weights, file, {"format": "pt"})


def as_pickle(model: Path) -> None:
    (model / "model.safetensors").rename(model / "pytorch_model.bin")


LOOP = "{% for i in range(99999) %}"
ENDS = "{% endfor %}"


def with_template(text: str) -> Callable[[Path], None]:
    return lambda model: (model / "chat_template.jinja").write_text(text) and None


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (without_a_layer, "no weights of the right shape for model.layers.0.mlp"),
        (as_pickle, "no *.safetensors in it"),
        (lambda model: (model / "chat_template.jinja").unlink(), "no chat template"),
        (with_template("hello"), "the chat template drops a part of the user message"),
        (with_template("{{ raise_exception('no') }}"), "chat template fails: no"),
        (with_template("{% if %}"), "chat template fails: "),
        (with_template('{% include "/etc/passwd" %}'), "chat template fails: no loader"),
        (with_template("{% for i in range(10**9) %}{% endfor %}"), "chat template fails: Range too big"),
        (with_template("{{ 'x' * 10**10 }}"), "the chat template takes more than 2 s, 1024 MiB"),
        (with_template("{{ 'x' * 10**8 }}"), "1,000,000 characters for one prompt"),
        (with_template(f"{LOOP * 3}{ENDS * 3}"), "the chat template takes more than 2 s"),
        (lambda model: (model / "tokenizer.json").write_text("{"), "its tokenizer cannot be read"),
        (lambda model: (model / "config.json").write_text("{"), ""),
    ],
)
def test_a_model_that_cannot_be_used_is_refused(
    capsys: pytest.CaptureFixture[str], damage: Callable[[Path], None], message: str
) -> None:
    damage(Path("model"))
    [line] = checked(capsys)
    assert line.startswith("my.yaml: models.mine: ")
    assert message in line


def lora(*names: str) -> dict[str, Any]:
    return {"r": 4, "alpha": 8, "dropout": 0.05, "target_modules": list(names)}


@pytest.mark.parametrize(
    ("model", "names", "message"),
    [
        ("tiny", ["q_proj", "v_porj"], "no module is named v_porj; the model has down_proj, gate_proj, k_proj, o_proj"),
        ("tiny", ["layers.7.self_attn.q_proj"], "no module is named layers.7.self_attn.q_proj; the model has "),
        ("tiny", ["self_attn"], "Target module LlamaAttention"),
        ("tiny", ["q_proj", "embed_tokens"], "the embedding has the weights of the head"),
        ("tiny", ["lm_head"], "the head cannot get an adapter"),
        ("qwen3_moe", "all-linear", "experts that are stacked in one tensor cannot get an adapter: write [k_proj, o_p"),
        ("mixtral", "all-linear", "experts that are stacked in one tensor cannot get an adapter: write [k_proj, o_p"),
        ("mixtral", ["q_proj", "gate_proj"], "no module is named gate_proj"),
        ("gpt_neox", ["embed_out"], "no module is named embed_out"),
    ],
)
def test_modules_that_cannot_get_an_adapter_are_named(
    capsys: pytest.CaptureFixture[str], model: str, names: Any, message: str
) -> None:
    base = tiny_policy() if model == "tiny" else converted_policy(model)
    changes = {"models": {"mine": {"source": "local", "path": base.base}}}
    (line,) = checked(capsys, **changes, lora=lora() | {"target_modules": names})
    assert line.startswith(f"my.yaml: models.mine: lora.target_modules: {message}")


def test_modules_of_the_embedded_model_are_checked_too(capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = checked(capsys, models={"mine": {"source": "embedded"}}, lora=lora("v_porj"))
    assert line.startswith("my.yaml: models.mine: lora.target_modules: no module is named v_porj; the model has")


@pytest.mark.parametrize(
    ("model", "targets"),
    [
        ("tiny", "all-linear"),
        ("tiny", ["layers.0.self_attn.q_proj", "up_proj"]),
        ("tiny", r".*\.self_attn\.(q|v)_proj"),
        ("qwen3_moe", ["q_proj", "v_proj"]),
        ("gpt_neox", ["embed_in", "dense"]),
        ("qwen2_moe", "all-linear"),
    ],
)
def test_modules_that_can_get_an_adapter_are_valid(
    capsys: pytest.CaptureFixture[str], model: str, targets: Any
) -> None:
    base = tiny_policy() if model == "tiny" else converted_policy(model)
    changes = {"models": {"mine": {"source": "local", "path": base.base}}}
    assert checked(capsys, **changes, lora=lora() | {"target_modules": targets}) == []


def test_a_benchmark_that_is_in_the_pool_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copyfile("pool.jsonl", "own.jsonl")
    [line] = checked(capsys, benchmarks={"own": {"source": "local", "path": "own.jsonl"}})
    assert "benchmarks.own: 9 of 9 problems are in the training pool" in line
    assert "remove them there" in line


def test_a_benchmark_that_selects_checkpoints_shares_no_problem_with_a_tested_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = [{"problem": f"{n} * 3", "answer": n * 3} for n in range(9)]
    for name, part in (("test", rows[:6]), ("dev", rows[4:])):
        Path(f"{name}.jsonl").write_text("\n".join(map(json.dumps, part)))
    test = {"source": "local", "path": "test.jsonl"}
    dev = {"source": "local", "path": "dev.jsonl"}
    assert checked(capsys, benchmarks={"test": test, "dev": dev}) == []
    [line] = checked(capsys, benchmarks={"test": test, "dev": dev | {"select_by": True}})
    assert line.startswith("my.yaml: benchmarks.test: 2 of 6 problems are in benchmarks.dev, which selects checkpoints")


def test_a_worked_example_is_no_problem_of_a_benchmark(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"problem": f"What is {n} * 3?", "answer": n * 3} for n in range(9)]
    Path("test.jsonl").write_text("\n".join(map(json.dumps, rows)))
    benchmarks = {"test": {"source": "local", "path": "test.jsonl"}}
    other = {"problem": "What is 10 * 3?", "answer": "\\boxed{30}"}
    same = {"problem": "what is $3 * 3$?", "answer": "\\boxed{9}"}
    assert checked(capsys, benchmarks=benchmarks, prompt={"examples": [other]}) == []
    [line] = checked(capsys, benchmarks=benchmarks, prompt={"examples": [other, same]})
    assert line == (
        "my.yaml: prompt.examples.1.problem: it is test-00003 of benchmarks.test: "
        "choose another example, or remove the problem there"
    )
    models = {"mine": CONFIG["models"]["mine"] | {"settings": {"prompt": {"examples": [same]}}}}
    [line] = checked(capsys, benchmarks=benchmarks, models=models)
    assert line.startswith("my.yaml: prompt.examples.0.problem: it is test-00003")


def test_generated_problems_are_compared_with_files(capsys: pytest.CaptureFixture[str]) -> None:
    problems = generate("facts", "test", 3, seed=0)
    write_pool([*ROWS, {"problem": problems[1].prompt, "answer": problems[1].answer, "level": 0}])
    benchmarks = {"facts": {"source": "synthetic", "family": "facts", "split": "test", "n": 3}}
    [line] = checked(capsys, benchmarks=benchmarks)
    assert line.startswith("my.yaml: benchmarks.facts: 1 of 3 problems are in the training pool")


def test_python_files_that_cannot_be_loaded_are_named_together(capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine.py").write_text(
        "import no_such_module\ndef judge(problem, completion): ...\ndef reward(completions): ...\n"
    )
    lines = checked(
        capsys,
        verifier={"source": "python", "file": "mine.py"},
        rewards={"kind": {"reward": "python", "file": "mine.py"}},
    )
    verifier, reward = lines
    assert re.match("my.yaml: verifier.file: .*mine.py.*no_such_module", verifier)
    assert re.match("my.yaml: rewards.kind: .*mine.py.*no_such_module", reward)


@pytest.mark.parametrize(
    ("body", "verdict"),
    [
        ("return problem['solution'] == completion", "error"),  # not the name of the field
        ("return 'yes'", "not_bool"),
        ("while True:\n        pass", "timeout"),
    ],
)
def test_a_verifier_that_fails_on_a_right_answer_is_named(
    capsys: pytest.CaptureFixture[str], body: str, verdict: str
) -> None:
    Path("mine.py").write_text(f"def judge(problem, completion):\n    {body}\n")
    [line] = checked(capsys, verifier={"source": "python", "file": "mine.py"})
    assert line.startswith(f"my.yaml: verifier.file: mine.py: judge has the verdict {verdict} for the answer")
    assert "`problem` has answer, level, metadata, prompt, subject" in line
    Path("mine.py").write_text("def judge(problem, completion):\n    return False\n")
    assert checked(capsys, verifier={"source": "python", "file": "mine.py"}) == []
