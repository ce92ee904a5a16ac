"""A stopped draw resumes after its finished parts, with the same bytes and all costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from snakemake.iocontainers import InputFiles

from g2d.grid.settings import SamplingMachine
from g2d.jobs.attempts import Stopped
from g2d.jobs.cost import Meter
from g2d.policies.record import as_json, write_policy
from g2d.problems import Problem
from g2d.problems.prompts import Prompt
from g2d.problems.synthetic import generate
from g2d.regimes.common.checkpoints import job_digest
from g2d.rollouts.engine import Decoding
from g2d.rollouts.rollout import Rollout, to_frame, write_rollouts
from g2d.rollouts.rollout_keys import EngineSettings
from g2d.stages import sample_rollouts
from g2d.stages.sample_rollouts import draw_in_parts, generate_rollouts
from g2d.verifier.verifier_keys import PythonVerifier, verifier_params
from tests.frames import group
from tests.models import tiny_policy

ASKED = generate("arithmetic", "train", 10, seed=0)
SAMPLES = 4
TOKENS = 10 * SAMPLES  # of the rollouts of a problem


@pytest.fixture(autouse=True)
def _three_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample_rollouts, "PART", 13)  # rollouts; 40 of them


def rollouts(problems: Sequence[Problem]) -> list[Rollout]:
    rows = []
    for problem in problems:
        rows += group(problem.problem_id, 1, SAMPLES, level=problem.level)
    return rows


def ids_of(problems: Sequence[Problem]) -> list[str]:
    return [problem.problem_id for problem in problems]


class Draws:
    """Draws rollouts and records the problems; stops in the given draw."""

    def __init__(self, stopped_in: int | None = None) -> None:
        self.asked: list[list[str]] = []
        self.stopped_in = stopped_in

    def __call__(self, problems: Sequence[Problem]) -> list[Rollout]:
        self.asked.append(ids_of(problems))
        if len(self.asked) == self.stopped_in:
            raise Stopped("stopped by SIGTERM")
        return rollouts(problems)


def drawn(folder: Path, draw: Draws, meter: Meter | None = None, seed: int = 0, n: int = 10) -> Path:
    """The file that a job leaves."""
    frame = draw_in_parts(
        folder / "work", ASKED[:n], draw, samples_per_prompt=SAMPLES, job={"seed": seed},
        meter=meter or Meter("tests", "harvest_rollouts"),
    )  # fmt: skip
    write_rollouts(folder / "rollouts.parquet", frame)
    return folder / "rollouts.parquet"


def in_one_piece(folder: Path) -> bytes:
    write_rollouts(folder / "whole.parquet", to_frame(rollouts(ASKED)))
    return (folder / "whole.parquet").read_bytes()


def stopped(folder: Path, draw: Draws) -> None:
    with pytest.raises(Stopped):
        drawn(folder, draw)


def test_parts_equal_an_uninterrupted_draw_and_leave_no_files(tmp_path: Path) -> None:
    draw = Draws()
    assert drawn(tmp_path, draw).read_bytes() == in_one_piece(tmp_path)
    assert [*map(len, draw.asked)] == [4, 3, 3]
    assert not (tmp_path / "work").exists()


def test_a_stopped_draw_resumes_after_the_last_part(tmp_path: Path) -> None:
    stopped(tmp_path, Draws(stopped_in=3))
    draw = Draws()
    assert drawn(tmp_path, draw).read_bytes() == in_one_piece(tmp_path)
    assert draw.asked == [ids_of(ASKED[2::3])]


@pytest.fixture
def resumed(tmp_path: Path) -> Meter:
    """Meter of a draw that was stopped and resumed."""
    stopped(tmp_path, Draws(stopped_in=3))
    meter = Meter("tests", "harvest_rollouts")
    drawn(tmp_path, Draws(), meter)
    return meter


def test_tokens_of_a_resumed_draw_are_counted_once(resumed: Meter) -> None:
    assert resumed.tokens_generated == 10 * TOKENS  # same as without a stop
    assert resumed.spent().tokens_generated == 10 * TOKENS
    assert resumed.measured().tokens_generated == 3 * TOKENS


def test_the_time_of_a_stopped_draw_is_carried(resumed: Meter) -> None:
    assert resumed.carried is not None
    assert resumed.spent().wall_s > resumed.carried.wall_s > 0


def cut_short(work: Path) -> None:
    file = work / "1-of-3/rollouts.parquet"
    file.write_bytes(file.read_bytes()[:-10])


def without_seal(work: Path) -> None:
    (work / "1-of-3/manifest.json").unlink()


@pytest.mark.parametrize("damage", [cut_short, without_seal])
def test_a_damaged_part_and_later_parts_are_drawn_again(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    stopped(tmp_path, Draws(stopped_in=3))
    damage(tmp_path / "work")
    draw = Draws()
    meter = Meter("tests", "harvest_rollouts")
    assert drawn(tmp_path, draw, meter).read_bytes() == in_one_piece(tmp_path)
    assert len(draw.asked) == 3
    assert meter.tokens_generated == 10 * TOKENS
    assert meter.carried is None


def test_parts_of_another_job_are_not_used(tmp_path: Path) -> None:
    stopped(tmp_path, Draws(stopped_in=3))
    draw = Draws()
    drawn(tmp_path, draw, seed=1)
    assert len(draw.asked) == 3


def test_a_short_draw_keeps_no_parts(tmp_path: Path) -> None:
    draw = Draws()
    meter = Meter("tests", "harvest_rollouts")
    drawn(tmp_path, draw, meter, n=6)  # 24 rollouts: less than two parts
    assert len(draw.asked) == 1
    assert meter.tokens_generated == 6 * TOKENS
    stopped_at_once = Draws(stopped_in=1)
    with pytest.raises(Stopped):
        drawn(tmp_path, stopped_at_once, n=6)
    assert not (tmp_path / "work").exists()


def test_parts_belong_to_a_policy_its_problems_a_decoding_and_a_verifier(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts of another job are not used, so everything that rollouts depend on is in the job."""
    jobs: list[Any] = []

    def recorded(*_: Any, job: Any, **__: Any) -> pd.DataFrame:
        jobs.append(job)
        return to_frame([])

    monkeypatch.setattr(sample_rollouts, "draw_in_parts", recorded)
    policy = replace(tiny_policy(), model="demo")
    write_policy(tmp_path / "tiny/base/policy.json", policy)
    Path(tmp_path / "mine.py").write_text("def judge(problem, completion): ...\n")
    own = verifier_params(PythonVerifier(source="python", file=str(tmp_path / "mine.py")))
    decoding = Decoding(SAMPLES, 1.0, 1.0, 12, 64, seed=0)
    given = {
        "input": InputFiles(fromdict={"policy": str(tmp_path / "tiny/base/policy.json")}),
        "output": SimpleNamespace(rollouts=tmp_path / "rollouts.parquet"),
        "threads": 1,
    }

    def job(
        n: int = 10, version: int = 1, seed: int = 0, system: str | None = None, batch_size: int = 64, **verifier: Any
    ) -> str:
        settings = {"prompt": Prompt(system=system).params(), **verifier}
        machine = SamplingMachine(engine=EngineSettings(), batch_size=batch_size).model_dump()
        params = SimpleNamespace(settings=settings, machine=machine, version=version)
        meter = Meter("tests", "harvest_rollouts")
        generate_rollouts(SimpleNamespace(**given, params=params), meter, ASKED[:n], replace(decoding, seed=seed))
        return job_digest(jobs[-1])

    assert job() == job() == job(batch_size=8)
    assert len({job(), job(n=9), job(version=2), job(seed=1), job(system="Reason."), job(**own)}) == 6
    assert jobs[0]["policy"] == as_json(policy)
