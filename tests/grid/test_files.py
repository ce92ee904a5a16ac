"""docs/architecture.md names the files that decide which jobs run, and what they depend on."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from g2d.checks.load import read
from g2d.grid.grid import Grid
from tests.configs import CONFIG

ROOT = Path(__file__).parents[2]


def files_called(function: Callable[[], Any]) -> set[str]:
    """Return the files of the package whose functions are called."""
    files: set[str] = set()

    def record(frame: FrameType, event: str, _: object) -> None:
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(f"{ROOT}/src/g2d/"):
            files.add(Path(name).relative_to(ROOT).as_posix())

    before = sys.getprofile()
    sys.setprofile(record)
    try:
        function()
    finally:
        sys.setprofile(before)
    return files


def named(question: str) -> set[str]:
    """Return the files in the answer to a question of the documentation."""
    [answer] = re.findall(rf"^\| {re.escape(question)} \| (.*) \|$", (ROOT / "docs/architecture.md").read_text(), re.M)
    files = set(re.findall(r"`(src/[\w/]+\.py)`", answer))
    for file in files:
        assert (ROOT / file).is_file(), file
    return files


def test_the_files_that_list_the_jobs_of_a_k_are_named() -> None:
    # An ablation also merges and validates the sections that it changes.
    config = read(CONFIG / "config.yaml").model_copy(update={"ablations": {}})

    def list_jobs() -> None:
        grid = Grid(config)
        for harvest in grid.harvests:
            _ = harvest.folder
        for policy in grid.evaluated:
            _ = policy.reads

    files = named("which jobs does `snakemake k50` run?")
    assert files_called(list_jobs) <= files | {
        "src/g2d/grid/settings.py",  # one object is made for each model, and asked by params only
    }
    assert len(files) <= 6


def test_the_files_that_a_learning_rate_passes_are_named() -> None:
    grid = Grid(read(CONFIG / "config.yaml"))
    policy = grid.at("demo/seed0/grpo/g2/k50")
    called = files_called(lambda: grid.settings_of(policy))
    files = named("where does `warmup.learning_rate` go?")
    assert {"src/g2d/grid/settings.py", "src/g2d/regimes/grpo/keys.py"} <= files & called
    assert grid.settings_of(policy)["warmup"]["learning_rate"] == grid.config.warmup.learning_rate
    reader = ROOT / "src/g2d/regimes/common/trainers.py"
    for file in (ROOT / "src/g2d/regimes").rglob("*.py"):
        assert (".learning_rate" in file.read_text()) == (file == reader), file
    assert reader.relative_to(ROOT).as_posix() in files
    assert len(files) <= 6
