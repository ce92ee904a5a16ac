"""Jobs forked from a process that has made the imports behave and end like separate jobs.

A sleeping process plays the run; the jobs are small scripts, each started as by Snakemake.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from g2d.jobs.orphans import RUN, name_of
from g2d.jobs.shared_imports import LOG
from tests.attempts import read_attempts

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs pidfd_open (Linux)")

JOB = """
from types import SimpleNamespace
from g2d.jobs.shared_imports import run
from g2d.jobs.stage import stage
from snakemake.iocontainers import InputFiles, OutputFiles, Params

def main(snakemake):
    with stage(snakemake):
        {body}

if __name__ == "__main__":
    import sys
    run(main, SimpleNamespace(
        rule="evaluate", wildcards=dict(model="demo"), log=["results/logs/evaluate/{name}.log"], threads=1,
        config=dict(share_imports={share}, models=dict(demo=dict(source="embedded"))),
        input=InputFiles(), params=Params(), resources=dict(gpu={gpus}), output=OutputFiles(["{name}/cost.json"]),
    ))
"""


class Run:
    """A run in a folder; its jobs are started by hand."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
        self.name = name_of(self.process.pid)
        self.left: set[int] = set()  # processes that ended jobs left running

    def start(
        self, name: str, body: str, share: bool = True, folder: Path | None = None, gpus: int = 0, **environment: str
    ) -> subprocess.Popen[str]:
        script = self.root / f"{name}.py"
        script.write_text(JOB.format(name=name, body=body, share=share, gpus=gpus))
        return subprocess.Popen(
            ["env", "--default-signal=INT", sys.executable, str(script)],
            cwd=self.root,
            env=os.environ
            | {RUN: self.name, "XDG_RUNTIME_DIR": str(folder or self.root), "MARK": name}
            | (environment or with_cuda(self.root, "4,5")),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def finish(self, name: str, body: str, *given: Any, **named: Any) -> tuple[int, str]:
        job = self.start(name, body, *given, **named)
        output, _ = job.communicate()
        return job.returncode, output

    def log(self, name: str) -> str:
        file = self.root / f"results/logs/evaluate/{name}.log"
        return file.read_text() if file.exists() else ""

    def shared(self) -> set[int]:
        """Return the PIDs of the shared process and its children, without `left`."""
        pids = set()
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                words = (folder / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"g2d.jobs.shared_imports" in words and self.name.encode() in words:
                pids.add(int(folder.name))
        return pids - self.left


def wait_until(condition: Callable[[], object]) -> None:
    while not condition():
        time.sleep(0.05)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    run = Run(tmp_path_factory.mktemp("run"))
    yield run
    run.process.kill()
    run.process.wait()
    wait_until(lambda: not run.shared())  # it ends with its run, also if its jobs left processes
    for pid in run.left:
        os.kill(pid, signal.SIGKILL)
    assert "Traceback" not in (run.root / LOG).read_text()


# vLLM: its import takes longer than all the others, and TRL would make it wherever it is installed.
ASKED = ("torch", "trl.trainer.dpo_trainer", "trl.trainer.grpo_trainer", "vllm")
PRINTS = f"import gc, os, sys; print(*(m in sys.modules for m in {ASKED}), gc.isenabled(), os.environ['MARK'])"


def test_a_job_has_the_imports_its_environment_and_its_log(run: Run) -> None:
    assert run.finish("first", PRINTS) == (0, "")
    assert run.finish("second", PRINTS) == (0, "")
    assert run.log("first") == "True True True False True first\n"
    assert run.log("second") == "True True True False True second\n"
    assert len(run.shared()) == 1


def test_the_first_job_pays_for_the_imports(run: Run) -> None:
    for name in ("first", "second", "third"):
        if not run.log(name):
            assert run.finish(name, PRINTS)[0] == 0
    spent = {a.cost.job: a.cost.cpu_s for a in read_attempts(run.root / "results/attempts") if a.status == "ok"}
    assert spent.pop("first/cost") > 10 * max(spent.values())


def test_trackio_writes_below_the_run(run: Run) -> None:
    """trackio reads its folder at import, and TRL imports it early."""
    assert run.finish("tracked", "from trackio.utils import TRACKIO_DIR; print(TRACKIO_DIR)") == (0, "")
    assert run.log("tracked") == f"{run.root}/results/logs/trackio\n"


def test_without_the_key_a_job_imports_its_packages(run: Run) -> None:
    assert run.finish("alone", PRINTS, share=False) == (0, "")
    assert run.log("alone") == "False False False False True alone\n"


@pytest.mark.parametrize("kind", ["too long", "no folder", "somebody else's"])
def test_without_a_place_for_a_socket_a_job_imports_its_packages(run: Run, tmp_path: Path, kind: str) -> None:
    folder = tmp_path / ("x" * 100 if kind == "too long" else "x")
    folder.mkdir()
    place = folder / f"g2d-{os.getuid()}"
    if kind == "no folder":
        place.touch()
    elif kind == "somebody else's":
        place.mkdir()
        place.chmod(0o777)
    name = f"homeless-{kind[:2]}"
    status, output = run.finish(name, PRINTS, folder=folder)
    assert (status, run.log(name)) == (0, f"False False False False True {name}\n")
    assert output.startswith(f"evaluate: makes its own imports: {place}: ")
    assert len(output.splitlines()) == 1


def test_a_failure_is_printed_on_the_terminal(run: Run) -> None:
    status, output = run.finish("fails", "raise ValueError('no such thing')")
    assert status == 1
    assert output == f"evaluate: no such thing\n  details: {run.root}/results/logs/evaluate/fails.log\n"
    assert "Traceback" in run.log("fails")


def test_a_killed_job_has_not_finished(run: Run) -> None:
    assert run.finish("killed", "import os; os.kill(os.getpid(), 9)")[0] == 128 + signal.SIGKILL


FORKS = """import os, time
        if (child := os.fork()) == 0:
            time.sleep(3600)
        print(child)"""
POOLS = """from multiprocessing import get_context
        global pool
        pool = get_context("fork").Pool(1)
        print(pool.apply(__import__("os").getpid))"""


@pytest.mark.parametrize("body", [FORKS, POOLS])
def test_a_job_ends_if_its_children_go_on(run: Run, body: str) -> None:
    """A plugin's worker may outlive its job; with its own imports the job would end too."""
    name = f"leaves-{[FORKS, POOLS].index(body)}"
    assert run.start(name, body).wait() == 0  # the child may hold the terminal
    left = int(run.log(name))
    run.left |= {left} & run.shared()
    assert bool(run.left) or body == POOLS  # a pool is closed


SLEEPS = "import os, time; print('pid', os.getpid(), flush=True); time.sleep(3600)"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_reaches_the_job(run: Run, number: signal.Signals) -> None:
    job = run.start(f"stopped-{number.name}", SLEEPS)
    wait_until(lambda: run.log(f"stopped-{number.name}"))
    job.send_signal(number)
    output, _ = job.communicate()
    assert job.returncode not in (0, None)
    attempt = next(a for a in read_attempts(run.root / "results/attempts") if number.name in a.cost.job)
    assert attempt.status == "stopped", output


def test_a_job_ends_when_the_waiting_process_is_killed(run: Run) -> None:
    job = run.start("orphan", SLEEPS)
    wait_until(lambda: run.log("orphan"))
    pid = int(run.log("orphan").split()[1])
    assert pid in run.shared()
    job.kill()
    wait_until(lambda: pid not in run.shared())
    job.communicate()
    assert "stopped by SIGTERM" in run.log("orphan")


# A torch that would have CUDA: PIDs of calls that begin it are written down. {extra}: what else differs.
WITH_CUDA = """
import os, sys
if "g2d.jobs.shared_imports" in sys.orig_argv:
    import g2d.jobs.shared_imports as shared
    import torch
    def begin(*_):
        with open({record!r}, "a") as file:
            file.write(f"{{os.getpid()}}\\n")
        return 0
    for name in ("_cuda_getDeviceCount", "_cuda_init", "_cuda_getCurrentRawStream"):
        setattr(torch._C, name, begin)
    {extra}
"""
FEW = 'shared.IMPORTS = ("torch",)'
LOOKS = """import os, torch
        assert torch.cuda._is_compiled()
        torch.cuda.is_available()
        print(os.getpid(), torch.cuda.is_initialized(), os.environ["CUDA_VISIBLE_DEVICES"])
        print(torch.cuda._parse_visible_devices())"""


def with_cuda(folder: Path, visible: str, extra: str = "") -> dict[str, str]:
    """Return the environment for a shared process of its own that has such a torch."""
    (folder / "sitecustomize.py").write_text(WITH_CUDA.format(record=str(folder / "began"), extra=extra))
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {"PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": visible}


def test_the_shared_process_leaves_cuda_to_its_jobs(run: Run) -> None:
    assert run.finish("looks", LOOKS, gpus=1) == (0, "")
    (pid, initialized, visible), (number,) = (line.split() for line in run.log("looks").splitlines())
    assert (initialized, visible, number) == ("False", "4", "[4]")  # the card that the job took, when CUDA begins
    began = set((run.root / "began").read_text().split())
    assert pid in began
    assert not began & set(map(str, run.shared()))


def test_a_job_ends_with_the_shared_process_and_the_next_one_starts_another(run: Run, tmp_path: Path) -> None:
    others, environment = run.shared(), with_cuda(tmp_path, "7", FEW)
    job = run.start("bereft", SLEEPS, **environment)
    wait_until(lambda: run.log("bereft"))
    child = int(run.log("bereft").split()[1])
    (parent,) = run.shared() - others - {child}
    os.kill(parent, signal.SIGKILL)
    output, _ = job.communicate()
    assert job.returncode == 1
    assert "the process that jobs share their imports with has died" in output
    assert run.finish("after", PRINTS, **environment) == (0, "")
    assert run.log("after") == "True False False False True after\n"


def test_ctrl_c_before_the_imports_are_made_prints_nothing(run: Run, tmp_path: Path) -> None:
    others = run.shared()
    job = run.start("impatient", PRINTS, **with_cuda(tmp_path, "8", "import time; time.sleep(3600)"))
    wait_until(lambda: run.shared() - others)
    job.send_signal(signal.SIGINT)
    assert job.communicate() == ("", None)
    assert job.returncode == 128 + signal.SIGINT
    for pid in run.shared() - others:
        os.kill(pid, signal.SIGKILL)


def test_ctrl_c_during_the_imports_of_a_job_itself_prints_nothing(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    interrupted = JOB.replace("with stage(snakemake):\n        {body}", "raise KeyboardInterrupt")
    script.write_text(interrupted.format(name="job", share=False, gpus=0))
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (128 + signal.SIGINT, "")


# Like a machine without memory for another process.
REFUSES = f"""{FEW}
    from multiprocessing.popen_fork import Popen
    launch = Popen._launch
    def refuse(*_):
        Popen._launch = launch
        raise BlockingIOError(11, "Resource temporarily unavailable")
    Popen._launch = refuse"""


def test_if_the_shared_process_cannot_fork_a_job_imports_its_packages(run: Run, tmp_path: Path) -> None:
    """The next job is served, and pays for the imports."""
    environment = with_cuda(tmp_path, "9", REFUSES)
    status, output = run.finish("refused", PRINTS, **environment)
    assert (status, run.log("refused")) == (0, "False False False False True refused\n")
    assert output.startswith("evaluate: makes its own imports: [Errno 11] Resource temporarily unavailable; ")
    assert len(output.splitlines()) == 1
    assert run.finish("served", PRINTS, **environment) == (0, "")
    assert run.log("served") == "True False False False True served\n"
    spent = {a.cost.job: a.cost.cpu_s for a in read_attempts(run.root / "results/attempts") if a.status == "ok"}
    assert spent["served/cost"] > 10 * spent["refused/cost"]


def test_if_an_import_begins_cuda_jobs_import_their_packages(run: Run, tmp_path: Path) -> None:
    extra = f"""{FEW}
    host = os.getpid()
    torch.cuda._is_in_bad_fork = lambda: os.getpid() != host"""
    status, output = run.finish("begun", PRINTS, **with_cuda(tmp_path, "6", extra))
    assert (status, run.log("begun")) == (0, "False False False False True begun\n")
    assert output.startswith("evaluate: makes its own imports: ")
    assert len(output.splitlines()) == 1
    assert "an import has begun CUDA" in (run.root / LOG).read_text()
