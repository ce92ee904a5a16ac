"""Snakemake's `--executor apart`: each job runs in an empty folder, as in a container, and shares only the storage."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import AsyncGenerator
from pathlib import Path

from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor
from snakemake_interface_executor_plugins.jobs import JobExecutorInterface
from snakemake_interface_executor_plugins.settings import CommonSettings

common_settings = CommonSettings(
    non_local_exec=True,
    implies_no_shared_fs=True,
    job_deploy_sources=True,
    pass_default_storage_provider_args=True,
    pass_default_resources_args=True,
    auto_deploy_default_storage_provider=False,
    init_seconds_before_status_checks=1,
)


class Executor(RemoteExecutor):
    def __post_init__(self) -> None:
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def get_python_executable(self) -> str:
        return os.environ["APART_PYTHON"]

    def run_job(self, job: JobExecutorInterface) -> None:
        folder = tempfile.mkdtemp(prefix="apart-")
        with open(Path(folder, "output"), "wb") as output:
            command = ["sh", "-c", self.format_job_exec(job)]
            self.processes[folder] = subprocess.Popen(command, cwd=folder, stdout=output, stderr=subprocess.STDOUT)
        self.report_job_submission(SubmittedJobInfo(job, external_jobid=folder))

    async def check_active_jobs(self, active_jobs: list[SubmittedJobInfo]) -> AsyncGenerator[SubmittedJobInfo, None]:
        for info in active_jobs:
            folder = str(info.external_jobid)
            status = self.processes[folder].poll()
            if status is None:
                yield info
            elif status == 0:
                self.report_job_success(info)
            else:
                self.report_job_error(info, msg=Path(folder, "output").read_text())

    def cancel_jobs(self, active_jobs: list[SubmittedJobInfo]) -> None:
        for info in active_jobs:
            self.processes[str(info.external_jobid)].terminate()
