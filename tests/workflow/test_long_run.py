"""What Snakemake prints during a run that takes long."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from typing import Any

from g2d.jobs.cost import Cost, write_cost
from tests.models import tiny_policy
from tests.workflow.conftest import Project

POINTER = re.compile("^`(g2d status .*--watch)`, in another terminal, shows steps and the time left.$")
TRAINED = "results/mine/seed0/dpo/g0/k0/policy.json"


def test_a_long_run_names_the_command_that_shows_its_progress_once(
    tmp_path: Path, micro_config: dict[str, Any]
) -> None:
    local = {"models": {"mine": {"source": "local", "path": "model"}}}
    project = Project.create(tmp_path / "g2d", micro_config | local)
    shutil.copytree(tiny_policy().base, project.root / "model")

    # Another seed's training took two hours here, on either kind of device.
    for device in ("cpu", "a card"):
        folder = project.results / f"mine/seed1/dpo/g0/{device}"
        folder.mkdir(parents=True)
        write_cost(folder / "cost.json", Cost("job", "train_dpo", 7200.0, 7200.0, 1, device, 7200.0, 0, 0), [])
    assert not pointers(project.snakemake("-n", TRAINED).stdout)
    printed = [line for line in project.build(TRAINED).splitlines() if line]
    [place] = pointers("\n".join(printed))
    assert "  Train dpo on the pairs of mine at K=0, " in printed[place + 1]

    pointer = POINTER.match(printed[place])
    assert pointer
    done = project.g2d(*shlex.split(pointer[1])[1:])
    assert done.returncode == 0
    assert "all jobs have finished" in done.stdout

    shutil.rmtree(project.results / "mine/seed1")
    assert not pointers(project.build("-R", "train_dpo", "--", TRAINED))


def pointers(printed: str) -> list[int]:
    return [number for number, line in enumerate(printed.splitlines()) if POINTER.match(line)]
