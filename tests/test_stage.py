"""What surrounds a stage: its log, its bill, its last word. Run in a process, because it redirects the output."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import os, sys
from types import SimpleNamespace
from g2d.stage import stage

class Named(list):
    def get(self, name, default=None):
        return getattr(self, name, default)

output, given = Named(["cost.html", "cost.json"]), Named()
given.costs = []
snakemake = SimpleNamespace(rule="train_dpo", threads=3, log=["logs/a.log"], output=output, input=given)
with stage(snakemake) as meter:
    print("from python")
    os.system("echo from a child process")
    meter.tokens_generated += 7
    print(os.environ["OMP_NUM_THREADS"])
    {body}
"""


def run(folder: Path, body: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", SCRIPT.replace("{body}", body)], cwd=folder, capture_output=True, text=True, check=False
    )


def test_output_goes_to_the_log_and_the_bill_is_written(tmp_path: Path) -> None:
    done = run(tmp_path, "pass")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    logged = (tmp_path / "logs/a.log").read_text().splitlines()
    assert sorted(logged) == ["3", "from a child process", "from python"]
    cost = json.loads((tmp_path / "cost.json").read_text())
    assert (cost["stage"], cost["tokens_generated"], cost["device"], cost["ancestry"]) == ("train_dpo", 7, "cpu", [])
    assert cost["device_s"] == cost["wall_s"] > 0


def test_a_failure_is_one_line_and_a_traceback_in_the_log(tmp_path: Path) -> None:
    done = run(tmp_path, "raise ValueError('pairs.jsonl: no pairs')")
    assert done.returncode == 1
    assert done.stderr == "train_dpo: pairs.jsonl: no pairs\n  details: logs/a.log\n"
    assert "Traceback" in (tmp_path / "logs/a.log").read_text()
    assert not (tmp_path / "cost.json").exists()


def test_a_log_on_a_full_disk_does_not_swallow_the_last_word(tmp_path: Path) -> None:
    script = SCRIPT.replace("logs/a.log", "/dev/full").replace('    os.system("echo from a child process")\n', "")
    script = script.replace('    print("from python")\n', "").replace('    print(os.environ["OMP_NUM_THREADS"])\n', "")
    command = [sys.executable, "-c", script.replace("{body}", "raise ValueError('work: disk full')")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stderr.startswith("train_dpo: work: disk full\n")
    assert done.returncode == 1
