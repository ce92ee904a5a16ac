"""Whether the jobs of a run may share processes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from g2d.jobs.orphans import RUN, name_of
from g2d.jobs.run_process import current_run

ASK = [sys.executable, "-c", "from g2d.jobs.run_process import current_run; print(current_run())"]


def test_jobs_in_containers_of_their_own_share_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that outlives its job would lose the files of the job's image."""
    own = ["unshare", "--user", "--map-root-user", "--mount"]
    try:
        subprocess.run([*own, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("a user may not have mounts of its own here")
    monkeypatch.setenv(RUN, name_of(os.getpid()))
    assert current_run() == name_of(os.getpid())
    assert [subprocess.check_output([*how, *ASK], text=True).strip() for how in ([], own)] == [current_run(), "None"]
