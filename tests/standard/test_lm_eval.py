"""A policy's adapter in lm-evaluation-harness, by the task and the commands that docs/standard.md gives."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from g2d.policies import Policy
from g2d.policies.embedded import copy_embedded
from g2d.problems.problem import write_problems
from g2d.problems.prompts import Prompt
from g2d.problems.synthetic import generate
from g2d.rollouts.draw import draw_rollouts, greedy
from g2d.rollouts.rollout import Rollout
from tests.models import adapted

BIN = Path(sys.executable).parent
PAGE = (Path(__file__).parents[2] / "docs/standard.md").read_text()
TASK = "tasks/g2d_arithmetic.yaml"

pytestmark = pytest.mark.skipif(
    not shutil.which("lm_eval", path=BIN), reason="no lm-evaluation-harness here: make test-standard"
)


def documented(beginning: str) -> str:
    """The command in the page that begins so."""
    [command] = re.findall(rf"^```\n({re.escape(beginning)}.*?)\n```", PAGE, re.M | re.S)
    return command


def ran(command: str, folder: Path) -> None:
    environment = os.environ | {
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(folder / "cache"),
    }
    done = subprocess.run(
        ["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Rollout]]:
    """A folder in which the harness has answered 24 problems by an adapter of the embedded model; and our answers."""
    folder = tmp_path_factory.mktemp("lm_eval")
    base, adapter = folder / "results/demo/base/model", folder / "results/demo/seed0/dpo/g2/k50/adapter"
    base.mkdir(parents=True)
    copy_embedded(base)
    policy = adapted(Policy("demo/base", "demo", "base", base=str(base)), adapter, std=0.05)
    problems = generate("arithmetic", "test", 24, seed=0)
    (folder / "results/problems").mkdir()
    write_problems(folder / "results/problems/arithmetic.jsonl", problems)
    [task] = re.findall(rf"`{TASK}`:\n\n```yaml\n(.*?)```", PAGE, re.S)
    (folder / TASK).parent.mkdir()
    (folder / TASK).write_text(task)
    ran(documented("lm_eval --model hf --model_args"), folder)
    return folder, draw_rollouts(policy, problems, Prompt(), greedy(56, 32))


def samples(folder: Path, task: str) -> list[dict[str, Any]]:
    """Return the harness's log of a task, in the order of its questions."""
    [file] = (folder / "lm_eval").glob(f"*/samples_{task}_*.jsonl")
    return sorted(map(json.loads, file.read_text().splitlines()), key=lambda row: row["doc_id"])


def results(folder: Path, task: str) -> dict[str, Any]:
    """The numbers of the run that had a task."""
    per_run = [json.loads(file.read_text())["results"] for file in (folder / "lm_eval").glob("*/results_*.json")]
    [of_task] = [numbers for numbers in per_run if task in numbers]
    return of_task


def test_the_harness_has_our_prompts_and_completions(answers: tuple[Path, list[Rollout]]) -> None:
    folder, evaluated = answers
    harness = samples(folder, "g2d_arithmetic")
    assert [row["arguments"]["gen_args_0"]["arg_0"] for row in harness] == [answer.prompt_text for answer in evaluated]
    assert [row["resps"][0][0] for row in harness] == [answer.completion_text for answer in evaluated]


def test_its_numbers_equal_ours_for_plain_numbers(answers: tuple[Path, list[Rollout]]) -> None:
    folder, evaluated = answers
    scores = results(folder, "g2d_arithmetic")["g2d_arithmetic"]
    rewards = [answer.reward for answer in evaluated]
    assert 0 < sum(rewards) < len(rewards)
    assert scores["exact_match,boxed"] == pytest.approx(sum(rewards) / len(rewards))


@pytest.mark.skipif(not shutil.which("jq"), reason="no jq on this machine")
def test_its_completions_can_be_judged_by_our_verifier(answers: tuple[Path, list[Rollout]]) -> None:
    folder, evaluated = answers
    ran(documented("jq"), folder)
    judged = [json.loads(line)["verdict"] for line in (folder / "judged.jsonl").read_text().splitlines()]
    assert judged.count("correct") == sum(answer.reward for answer in evaluated)


def test_the_command_for_standard_tasks_runs(answers: tuple[Path, list[Rollout]], real_data: Path) -> None:
    """Three questions of GSM8K (MATH needs another antlr4), from a folder with the name of its repository."""
    folder, _ = answers
    copy = folder / "openai/gsm8k"
    copy.mkdir(parents=True)
    for split in ("train", "test"):
        shutil.copy(real_data / f"gsm8k/{split}.jsonl", copy)
    files = [{"split": split, "path": f"{split}.jsonl"} for split in ("train", "test")]
    header = yaml.safe_dump({"configs": [{"config_name": "main", "data_files": files}]})
    (copy / "README.md").write_text(f"---\n{header}---\n")
    command = documented("POLICY=")
    here = {
        "Qwen/Qwen2.5-7B-Instruct,revision=a09a35458c702b33eeacc393d103063234e8bc28": "results/demo/base/model",
        "results/qwen2.5-7b-instruct/seed0/dpo/g2/k150": "results/demo/seed0/dpo/g2/k50",
        "dtype=bfloat16": "dtype=float32",
        "minerva_math500,gsm8k": "gsm8k",
        "max_gen_toks=1024": "max_gen_toks=8",  # the context has 256
    }
    for theirs, ours in here.items():
        assert theirs in command
        command = command.replace(theirs, ours)
    ran(f"{command} --device cpu --limit 3", folder)
    prompt = samples(folder, "gsm8k")[0]["arguments"]["gen_args_0"]["arg_0"]
    assert prompt.startswith(
        "<|im_start|>system\nPlease reason step by step, and put your final answer within \\boxed{}."
    )
    assert prompt.count("Question:") == 1  # no examples
    assert {"exact_match,strict-match", "exact_match,flexible-extract"} < results(folder, "gsm8k")["gsm8k"].keys()
