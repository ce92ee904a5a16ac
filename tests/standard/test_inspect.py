"""`g2d export --to inspect`: logs that inspect_ai reads, with our numbers."""

from __future__ import annotations

import json
import os
import shutil
import sys
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import pytest
import yaml

import g2d
from g2d.cli import main
from g2d.experiment.keys import PolicyKey
from g2d.jobs.attempts import Attempt
from g2d.jobs.cost import Cost
from g2d.jobs.files import write_json
from g2d.policies.policy import Policy, write_policy
from g2d.problems import Problem
from g2d.problems.problem import write_problems
from g2d.report.inspect_logs import REASONS, log_of
from g2d.rollouts.rollout import Rollout, write_rollouts
from g2d.verifier import Verdict
from g2d.verifier.verdict import NO_REFERENCE
from tests.frames import rollout

needs_inspect = pytest.mark.skipif(
    not shutil.which("inspect", path=Path(sys.executable).parent), reason="no inspect_ai here: make test-standard"
)

QUESTIONS = [Problem(f"q{i}", f"What is {i} + 1?", str(i + 1), 1, "sums", "test") for i in range(4)]
M0 = PolicyKey("tiny", "base", 0, 0, None)
DPO = PolicyKey("tiny", "dpo", 0, 0, 7)
VERDICTS: list[Verdict] = ["correct", "incorrect", "truncated", "correct"]
BEGAN, WRITTEN = 1_700_000_000, 1_600_000_000


def answered(key: PolicyKey, verdicts: list[Verdict], samples: int = 1) -> list[Rollout]:
    """Return an answer to every question; further samples of each are wrong."""
    return [
        rollout(
            question.problem_id,
            sample,
            verdict if sample == 0 else "incorrect",
            policy_id=key.folder,
            reference_answer=question.answer,
            prompt_text=f"<user>{question.prompt}<assistant>",
            completion_text=rf"It is \boxed{{{question.answer}}}",
            extracted_answer=None if verdict in ("no_boxed", "truncated") else question.answer,
            finish_reason="length" if verdict == "truncated" else "stop",
            token_count=5,
        )
        for question, verdict in zip(QUESTIONS, verdicts, strict=True)
        for sample in range(samples)
    ]


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A results folder in which M0 and one of two seeds of DPO have answered."""
    return finished(tmp_path / "results", {})


def finished(folder: Path, evaluation: dict[str, Any]) -> Path:
    synthetic = {"source": "synthetic", "family": "arithmetic", "n": 4}
    config = {
        "title": "Small",
        "demonstration": "Made up.",
        "seeds": [7, 8],
        "models": {"tiny": {"source": "scratch", "settings": {"evaluation": {"max_completion_length": 30}}}},
        "pool": {**synthetic, "split": "train", "n": 2000},
        "benchmarks": {"sums": {**synthetic, "split": "test"}},
        "prompt": {"system": "Be brief.", "template": "{problem} Box it."},
        "warmup": {"steps": [0]},
        "baselines": {"grpo_group_sizes": []},
        "evaluation": evaluation,
    }
    folder.mkdir()
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    (folder / "problems").mkdir()
    write_problems(folder / "problems/sums.jsonl", QUESTIONS)
    samples = evaluation.get("sampled", {}).get("n", 1)
    for key in (M0, DPO):
        policy_folder = folder / key.folder
        (policy_folder / "eval").mkdir(parents=True)
        policy = Policy(key.folder, "tiny", key.regime, base="results/tiny/base/model", seed=key.seed)
        write_policy(policy_folder / "policy.json", policy)
        write_rollouts(policy_folder / "eval/sums.parquet", answered(key, VERDICTS, samples))
        os.utime(policy_folder / "eval/sums.parquet", (WRITTEN, WRITTEN))
    cost = Cost(f"results/{DPO.folder}/eval/sums.cost", "evaluate", 2, 2, 1, "cpu", 2, 20, 1)
    attempt = Attempt("ok", cost, "host", BEGAN + 0.5, BEGAN + 2.5, 1.0)
    (folder / "attempts").mkdir()
    write_json(folder / "attempts/evaluate.json", asdict(attempt))
    return folder


def log(folder: Path, key: PolicyKey) -> dict[str, Any]:
    attempts = {attempt.cost.job: attempt for attempt in g2d.open(folder).attempts}
    return log_of(g2d.open(folder), key, "sums", QUESTIONS, attempts.get(f"results/{key.folder}/eval/sums.cost"))


def test_a_log_has_question_answer_and_verdict(results: Path) -> None:
    written = log(results, DPO)
    sample = written["samples"][2]
    messages = [("system", "Be brief."), ("user", "What is 2 + 1? Box it.")]
    assert [(message["role"], message["content"]) for message in sample["input"]] == messages
    assert (sample["id"], sample["epoch"], sample["target"]) == ("q2", 1, "3")
    assert sample["messages"][-1]["content"] == r"It is \boxed{3}"
    assert sample["output"]["choices"][0]["stop_reason"] == "max_tokens"
    assert sample["metadata"]["prompt_text"] == "<user>What is 2 + 1?<assistant>"  # the text that the policy read
    assert [own["scores"]["verifier"]["value"] for own in written["samples"]] == ["C", "I", "N", "C"]
    assert sample["scores"]["verifier"]["explanation"].startswith("truncated: ")


def test_a_log_names_task_settings_and_time(results: Path) -> None:
    evaluation = log(results, DPO)["eval"]
    assert (evaluation["task"], evaluation["model"]) == ("sums", "tiny/seed7/dpo/g0/k0")
    assert evaluation["metadata"] == {"policy": "dpo", "K": 0, "group_size": 0, "seed": 7}
    assert evaluation["model_generate_config"] == {"temperature": 0.0, "top_p": 1.0, "max_tokens": 30}
    assert evaluation["created"] == "2023-11-14T22:13:20+00:00"  # BEGAN
    assert log(results, M0)["stats"]["completed_at"] == "2020-09-13T12:26:40+00:00"  # WRITTEN: it has no record


def test_accuracy_and_standard_error_are_per_seed(results: Path) -> None:
    [score] = log(results, DPO)["results"]["scores"]
    values = {name: metric["value"] for name, metric in score["metrics"].items()}
    assert values == pytest.approx({"accuracy": 1 / 2, "stderr": (1 / 3) ** 0.5 / 2})  # scores 1, 0, 0, 1


def test_every_verdict_of_a_benchmark_is_explained() -> None:
    assert {*REASONS, NO_REFERENCE} == set(get_args(Verdict))


def test_an_answer_to_no_problem_is_refused(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    opened = g2d.open(results)
    with pytest.raises(ValueError, match=r"sums.parquet: answers 'q3', which is not in problems/sums.jsonl: run"):
        log_of(opened, M0, "sums", QUESTIONS[:3], None)


def test_without_inspect_the_error_says_how_to_get_it(
    results: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "inspect_ai", None)
    monkeypatch.setitem(sys.modules, "inspect_ai.log", None)
    assert main(["export", str(results), "--to", "inspect"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "g2d export: inspect_ai is not installed: pip install 'g2d[inspect]' (docs/standard.md)"
    ]


def test_a_log_is_whole_or_absent(results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(log: Any, location: Path, **_: Any) -> None:
        location.write_text("half")
        raise KeyboardInterrupt

    package = SimpleNamespace(EvalLog=SimpleNamespace(model_validate=dict), write_eval_log=interrupted)
    monkeypatch.setitem(sys.modules, "inspect_ai", package)
    monkeypatch.setitem(sys.modules, "inspect_ai.log", package)
    assert main(["export", str(results), "--to", "inspect", "--out", str(tmp_path / "logs")]) == 130
    assert not [*(tmp_path / "logs").rglob("*.eval")]


# ---------------------------------------------------------------------------------------------- with its own package


@needs_inspect
@pytest.mark.parametrize("evaluation", [{}, {"sampled": {"n": 3}}], ids=["greedy", "sampled"])
def test_inspect_reads_the_logs_and_finds_our_numbers(
    tmp_path: Path, evaluation: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """Also by its own metrics, from the samples: the accuracies and standard errors of `main_table` for one seed."""
    from inspect_ai.log import list_eval_logs, read_eval_log, recompute_metrics

    folder, out = finished(tmp_path / "results", evaluation), tmp_path / "logs"
    assert main(["export", str(folder), "--to", "inspect", "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"2 of 3 evaluations in {out}: inspect view --log-dir {out}\n"
    logs = {log.eval.model: log for log in map(read_eval_log, list_eval_logs(str(out)))}
    assert sorted(logs) == ["tiny/base", "tiny/seed7/dpo/g0/k0"]
    table = g2d.open(folder).build("main").set_index("policy")
    for name, model in [("base", "tiny/base"), ("dpo", "tiny/seed7/dpo/g0/k0")]:
        log = logs[model]
        assert log.status == "success" and log.samples is not None and len(log.samples) == 4 * (3 if evaluation else 1)
        assert log.eval.model_generate_config.max_tokens == 30
        written = metrics(log)
        assert written == pytest.approx({"accuracy": table.accuracy[name], "stderr": table.standard_error[name]})
        recompute_metrics(log)
        assert metrics(log) == pytest.approx(written)


@needs_inspect
def test_logs_written_twice_are_equal(results: Path, tmp_path: Path) -> None:
    from inspect_ai.log import read_eval_log

    for out in ("a", "b"):
        assert main(["export", str(results), "--to", "inspect", "--out", str(tmp_path / out)]) == 0
    for key in (M0, DPO):
        first, second = (read_eval_log(str(tmp_path / out / key.folder / "sums.eval")) for out in ("a", "b"))
        assert json.loads(first.model_dump_json()) == json.loads(second.model_dump_json())


@needs_inspect
def test_without_finished_evaluations_there_is_one_line(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(results / "tiny")
    for folder, message in [(results, "no evaluation has finished there"), (tmp_path, "no results folder")]:
        assert main(["export", str(folder), "--to", "inspect", "--out", str(tmp_path / "logs")]) == 2
        [line] = capsys.readouterr().err.splitlines()
        assert line.startswith(f"g2d export: {folder}: {message}")
    assert not (tmp_path / "logs").exists()


def metrics(log: Any) -> dict[str, float]:
    [score] = log.results.scores
    return {name: metric.value for name, metric in score.metrics.items()}
