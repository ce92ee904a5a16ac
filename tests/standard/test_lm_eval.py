"""A policy's adapter in lm-evaluation-harness, by the task and the commands that docs/standard.md gives."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

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


def samples(folder: Path) -> list[dict[str, Any]]:
    [file] = (folder / "lm_eval").glob("*/samples_g2d_arithmetic_*.jsonl")
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    return sorted(rows, key=lambda row: row["doc"]["problem_id"])


def test_the_harness_asks_and_gets_what_we_do(answers: tuple[Path, list[Rollout]]) -> None:
    folder, own = answers
    harness = samples(folder)
    ours = sorted(own, key=lambda answer: answer.problem_id)
    assert [row["arguments"]["gen_args_0"]["arg_0"] for row in harness] == [answer.prompt_text for answer in ours]
    assert [row["resps"][0][0] for row in harness] == [answer.completion_text for answer in ours]


def test_its_numbers_are_ours_where_answers_are_plain_numbers(answers: tuple[Path, list[Rollout]]) -> None:
    folder, own = answers
    [file] = (folder / "lm_eval").glob("*/results_*.json")
    found = json.loads(file.read_text())["results"]["g2d_arithmetic"]
    rewards = [answer.reward for answer in own]
    assert 0 < sum(rewards) < len(rewards)
    assert found["exact_match,boxed"] == pytest.approx(sum(rewards) / len(rewards))


@pytest.mark.skipif(not shutil.which("jq"), reason="no jq on this machine")
def test_its_completions_can_be_judged_by_our_verifier(answers: tuple[Path, list[Rollout]]) -> None:
    folder, own = answers
    ran(documented("jq"), folder)
    judged = [json.loads(line)["verdict"] for line in (folder / "judged.jsonl").read_text().splitlines()]
    assert judged.count("correct") == sum(answer.reward for answer in own)


def test_the_tasks_of_the_page_exist() -> None:
    from lm_eval.tasks import TaskManager

    command = shlex.split(documented("lm_eval --model hf \\\n").replace("\\\n", " "))
    named = command[command.index("--tasks") + 1].split(",")
    assert TaskManager().match_tasks(named) == sorted(named) == ["gsm8k", "minerva_math500"]
