"""Names of processes that are unique even if a PID is used again, and jobs without their Snakemake."""

from __future__ import annotations

import os
import select
import subprocess
import sys

import pytest

from g2d.jobs.orphans import RUN, has_ended, name_of, this_machine, watched

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs pidfd_open (Linux)")
WAITS = [sys.executable, "-c", "import sys; sys.stdin.read()"]


def test_a_process_is_watched_until_it_ends_also_as_a_zombie() -> None:
    with subprocess.Popen(WAITS, stdin=subprocess.PIPE) as process:
        name = name_of(process.pid)
        assert has_ended(name) is False
        descriptor = watched(name)
        assert descriptor is not None
        process.kill()
        select.select([descriptor], [], [])
        os.close(descriptor)
        assert has_ended(name) is True  # a zombie
    assert has_ended(name) is True
    with pytest.raises(ProcessLookupError):
        name_of(process.pid)


def test_a_number_that_is_used_again_is_another_process() -> None:
    pid, ticks, machine = name_of(os.getpid()).split(" ", 2)
    assert has_ended(f"{pid} {int(ticks) - 1} {machine}") is True


def test_processes_of_another_machine_boot_or_container_are_unknown() -> None:
    pid, ticks, _ = name_of(os.getpid()).split(" ", 2)
    boot, namespace = this_machine().split(" ")
    assert has_ended(f"{pid} {ticks} {boot[::-1]} {namespace}") is None
    assert has_ended(f"{pid} {ticks} {boot} pid:[1]") is None


def test_a_job_does_not_begin_without_its_snakemake() -> None:
    with subprocess.Popen(WAITS, stdin=subprocess.PIPE) as snakemake:
        name = name_of(snakemake.pid)
        snakemake.kill()
    job = "from g2d.jobs.orphans import end_with_snakemake; end_with_snakemake(); print('begun')"
    done = subprocess.run(
        [sys.executable, "-c", job], env=os.environ | {RUN: name}, capture_output=True, text=True, check=False
    )
    message = "the Snakemake that started this job is gone: not begun\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", message)
