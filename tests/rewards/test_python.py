"""A reward from a Python file: its function, what may be wrong with it, and what depends on its content."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from g2d.checks.load import load
from g2d.checks.requirements import require_files
from g2d.problems import Problem
from g2d.regimes.common.stopping import stop_requests
from g2d.rewards.python import PythonReward
from g2d.rewards.registry import is_scalar, judge, kind_of, reward_params, reward_settings, words_of
from g2d.rewards.reward import Judgement, VerifiedCompletion
from g2d.settings import ConfigError
from g2d.verifier import Verification, VerifierError, pool
from g2d.verifier.user_code import signature
from tests.configs import MINIMAL
from tests.open_ended import HELD_OUT, POOL
from tests.rewards.models import CONTEXT, rewards_of

SHORT = "def reward(completions, **kwargs):\n    return [-len(text) / 10 for text in completions]\n"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # a path is relative to the working directory
    signature.cache_clear()


def written(text: str, **keys: Any) -> PythonReward:
    Path("mine.py").write_text(text)
    signature.cache_clear()
    return PythonReward(reward="python", file="mine.py", **keys)


def judged(settings: PythonReward, groups: int = 2) -> list[Judgement]:
    """Two completions of each of some problems, "a", "aa", "aaa", ..., the first of each right."""
    to_score = []
    for n in range(groups):
        problem = Problem(f"p{n}", f"question {n}", str(n), 1, None, "a test")
        right = Verification("correct", None)
        wrong = Verification("incorrect", None)
        to_score.append(VerifiedCompletion(problem, f"p{n}", 0, "a" * (2 * n + 1), right))
        to_score.append(VerifiedCompletion(problem, f"p{n}", 1, "a" * (2 * n + 2), wrong))
    return judge(settings, to_score, CONTEXT)


def test_it_judges_and_comes_back_from_the_parameters_of_a_job() -> None:
    settings = written(SHORT)
    assert rewards_of(judged(settings)) == [-0.1, -0.2, -0.3, -0.4]
    assert is_scalar(settings)
    assert words_of(settings) == "rewards of mine.py"
    assert reward_settings(reward_params(settings)) == settings


def test_its_function_gets_every_list_by_name_a_group_at_a_time() -> None:
    settings = written(
        "import json\n"
        "def judge(completions, prompts, answers, verdicts, *, problem_ids, trainer_state=None):\n"
        "    with open('seen.jsonl', 'a') as file:\n"
        "        print(json.dumps([prompts, completions, answers, verdicts, problem_ids]), file=file)\n"
        "    return [float(verdict == 'correct') for verdict in verdicts]\n",
        function="judge",
        binary=True,
    )
    assert rewards_of(judged(settings)) == [1, 0, 1, 0]
    assert not is_scalar(settings)
    assert words_of(settings) == "rewards of mine.py (judge)"
    seen = sorted(map(json.loads, Path("seen.jsonl").read_text().splitlines()))
    verdicts = ["correct", "incorrect"]
    assert seen == [
        [["question 0"] * 2, ["a", "aa"], ["0"] * 2, verdicts, ["p0"] * 2],
        [["question 1"] * 2, ["aaa", "aaaa"], ["1"] * 2, verdicts, ["p1"] * 2],
    ]


def test_another_content_is_another_reward() -> None:
    before = reward_params(written(SHORT))
    assert reward_params(written(SHORT)) == before
    assert reward_params(written(SHORT + "\n")) != before
    with pytest.raises(ValueError, match=r"mine\.py: its files changed after this job was planned"):
        reward_settings(before)


@pytest.mark.parametrize(
    ("body", "statuses"),
    [
        ("return [None if len(text) == 1 else 1.0 for text in completions]", ["not_finite", "judged"]),
        ("return [float('nan') if len(text) == 1 else 'five' for text in completions]", ["not_finite"] * 2),
        ("return [1 / (len(text) - 1) for text in completions]", ["error"] * 2),
        ("return completions[1:]", ["error"] * 2),
        ("return '01'", ["error"] * 2),
        ("return {1.0: 0, 2.0: 0}", ["error"] * 2),
        ("return ['1', b'2']", ["not_finite"] * 2),
        ("return [float(sum(range(10**12)))] * 2", ["late"] * 2),  # C code, in which no signal handler runs
        ("return 1.0", ["error"] * 2),
        ("import sys; sys.exit(0)", ["error"] * 2),
        ("import os; os._exit(0)", ["error"] * 2),
        ("raise KeyboardInterrupt", ["error"] * 2),
        ("import time; time.sleep(60)", ["late"] * 2),
        ("while True: pass", ["late"] * 2),
        ("return [len(bytearray(3 * 2**30))] * 2", ["error"] * 2),
    ],
)
def test_a_failure_is_a_status_of_its_group_and_never_ends_the_job(body: str, statuses: list[str]) -> None:
    """The first of two groups fails; the second has its rewards."""
    text = f"def reward(completions):\n    if len(completions[0]) > 1:\n        return [1, 2]\n    {body}\n"
    judgements = judged(written(text, time_limit=0.5))
    assert [judgement.status for judgement in judgements] == [*statuses, "judged", "judged"]
    assert rewards_of(judgements[2:]) == [1, 2]


def test_writing_to_any_descriptor_spoils_no_number() -> None:
    text = """
import os
def reward(completions):
    for descriptor in range(21):
        try:
            os.write(descriptor, b"[1, 2]" * 100_000)
        except OSError:
            pass
    print("[1, 2]" * 100_000, flush=True)
    return [len(text) for text in completions]
"""
    assert rewards_of(judged(written(text))) == [1, 2, 3, 4]


def test_the_details_have_the_reason() -> None:
    first, _ = judged(written("def reward(completions):\n    return [1 / 0]\n"), groups=1)
    assert first.details == {"error": "ZeroDivisionError: division by zero"}
    first, _ = judged(written("def reward(completions):\n    return [1]\n"), groups=1)
    assert first.details == {"error": "1 numbers for 2 completions: return a list with one for each"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("import os\n\nimport not_there\n", r"ModuleNotFoundError: .*, line 3\): mend it"),
        ("import sys\nsys.exit(0)\n", r"SystemExit: 0, line 2\): mend it"),
    ],
)
def test_a_file_that_cannot_be_executed_ends_the_job_with_the_line(text: str, reason: str) -> None:
    with pytest.raises(VerifierError, match=rf"did not start .*mine\.py cannot be executed \({reason}"):
        judged(written(text + SHORT))


@pytest.mark.parametrize(
    ("text", "keys", "message"),
    [
        (None, {}, "mine.py does not exist in "),
        (
            "def reward(completions)\n",
            {},
            r"mine.py cannot be read as Python \(SyntaxError: expected ':', line 1\): mend it",
        ),
        ("def short(completions): ...\n", {}, r"mine.py has no function reward \(its functions: short\): define it"),
        (SHORT, {"function": "long"}, r"mine.py has no function long \(its functions: reward\)"),
        ("def reward(completions, solution): ...\n", {}, "requires solution, which a reward is not given: take any of"),
        ("def reward(texts, /): ...\n", {}, "requires texts, which a reward is not given"),
        ("def reward(prompts): ...\n", {}, "has no parameter `completions`, the list of texts to judge"),
        ("async def reward(completions): ...\n", {}, "is async: make it a plain function"),
    ],
)
def test_a_mistake_in_it_is_named_before_anything_runs(text: str | None, keys: dict[str, Any], message: str) -> None:
    if text is not None:
        Path("mine.py").write_text(text)
    config = load(MINIMAL | {"rewards": {"own": {"reward": "python", "file": "mine.py"} | keys}})
    with pytest.raises(ConfigError, match=rf"^rewards.own: .*{message}"):
        require_files(config)


def test_where_a_reward_is_named_its_file_can_stand() -> None:
    ablation = {"steps": [0], "reward": {"file": "of/my reward.py"}}
    ablations = {"one": ablation, "same": ablation, "other": ablation | {"reward": {"file": "my-reward.py"}}}
    config = load(MINIMAL | {"rewards": {"short": {"file": "short.py"}}, "ablations": ablations})
    assert config.rewards.keys() == {"short", "my-reward", "my-reward-2"}
    assert config.rewards["short"].file == "short.py"
    assert config.rewards["my-reward"].file == "of/my reward.py"
    assert config.rewards["my-reward-2"].file == "my-reward.py"
    assert config.ablations["one"].reward == config.ablations["same"].reward == "my-reward"
    assert config.ablations["other"].reward == "my-reward-2"
    assert load(config.model_dump()) == config


@pytest.mark.parametrize(
    ("reward", "message"),
    [
        ({"file": "a.py", "binry": True}, "rewards.a.binry: unknown key; did you mean binary"),
        ({"fiel": "a.py"}, "ablations.one.reward: "),
        ({"file": 3}, "ablations.one.reward: "),
    ],
)
def test_a_mistake_beside_the_file_is_named(reward: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(MINIMAL | {"ablations": {"one": {"steps": [0], "reward": reward}}})


def test_open_ended_prompts_refuse_one_that_takes_the_right_answer() -> None:
    section = {"pool": POOL, "held_out": HELD_OUT, "reward": {"file": "mine.py"}}
    written(SHORT)
    load(MINIMAL | {"open_ended": section})
    signature.cache_clear()
    settings = written("def reward(completions, answers): ...\n")
    assert kind_of(settings).needs_reference
    with pytest.raises(ConfigError, match=r"open_ended.reward: mine needs a reference answer"):
        load(MINIMAL | {"open_ended": section})


def test_a_fork_in_it_answers_nothing(tmp_path: Path) -> None:
    """Its reply would be taken for that of the next group."""
    fork = (
        "import os\ndef reward(completions):\n"
        "    child = os.fork() == 0\n    return [len(text) + 9 * child for text in completions]\n"
    )
    assert rewards_of(judged(written(fork), groups=40)) == [*range(1, 81)]


@pytest.mark.parametrize("body", ["float(sum(range(10**12)))", "__import__('time').sleep(1000)"])
def test_its_processes_end_with_the_job(body: str) -> None:
    """Also inside C code, with what the function has started, and after `kill -9` of the job."""
    text = (
        "import os, subprocess\ndef reward(completions):\n"
        "    helper = subprocess.Popen(['sleep', '1000'])\n"
        "    with open('pids', 'w') as file:\n        print(os.getpid(), helper.pid, file=file, flush=True)\n"
        f"    {body}\n"
    )
    written(text)
    program = (
        "from tests.rewards.test_python import judged, PythonReward\n"
        "judged(PythonReward(reward='python', file='mine.py'), groups=1)\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    job = subprocess.Popen([sys.executable, "-c", program], env=environment)
    pids = Path("pids")
    wait_until(lambda: pids.is_file() and pids.read_text().endswith("\n"))
    job.kill()
    job.wait()
    wait_until(lambda: not any(runs(int(pid)) for pid in pids.read_text().split()))


def test_a_request_to_stop_ends_a_call_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "STOP_S", 1.0)
    settings = written("import os\ndef reward(completions):\n    os.kill(os.getppid(), 15)\n    sum(range(10**12))\n")
    with stop_requests() as requests, pytest.raises(VerifierError, match="no answer 1 s after the request to stop"):
        judged(settings)
    assert set(requests) == {"SIGTERM"}
    assert rewards_of(judged(written(SHORT))) == [-0.1, -0.2, -0.3, -0.4]


def wait_until(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.05)


def runs(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
