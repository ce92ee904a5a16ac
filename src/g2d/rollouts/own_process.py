"""Sample rollouts with a new engine, in this process or in a new one.

A closed vLLM may keep GPU memory until its process ends.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from g2d.jobs.cost import charge_gpu_memory, gpu_memory_peak
from g2d.jobs.orphans import end_with_snakemake
from g2d.jobs.temporary import temporary_folder
from g2d.policies.record import PolicyRecord
from g2d.problems import Problem
from g2d.problems.prompts import Prompt
from g2d.rollouts.engine import Decoding
from g2d.rollouts.rollout import Rollout
from g2d.rollouts.rollout_keys import EngineSettings
from g2d.rollouts.sample import engine_for, sample_rollouts
from g2d.verifier import Verifier
from g2d.verifier.verifier_keys import PythonVerifier, own_file


@dataclass(frozen=True, slots=True)
class SamplingJob:
    policy: PolicyRecord
    problems: Sequence[Problem]
    prompt: Prompt
    decoding: Decoding
    engine: EngineSettings
    verifier: PythonVerifier | None
    workers: int  # verifier processes


def sample(job: SamplingJob) -> list[Rollout]:
    engine = engine_for(job.policy, job.engine)
    with Verifier(job.workers, file=own_file(job.verifier)) as verifier:
        return sample_rollouts(job.policy, job.problems, job.prompt, job.decoding, engine=engine, verifier=verifier)


def sample_in_own_process(job: SamplingJob) -> list[Rollout]:
    """Sample in a new process that prints to this one's output; a RuntimeError if it fails.

    Its GPU memory is charged to this job; the system charges its CPU time.
    """
    with temporary_folder("sampling") as folder:
        given, result = Path(folder, "job"), Path(folder, "rollouts")
        given.write_bytes(pickle.dumps(job))
        done = subprocess.run([sys.executable, "-m", __name__, str(given), str(result)], check=False)
        if done.returncode:
            raise RuntimeError(f"sampling failed in a process of its own (status {done.returncode}); the log says why")
        rollouts: list[Rollout]
        rollouts, gpu_memory = pickle.loads(result.read_bytes())
        charge_gpu_memory(gpu_memory)
        return rollouts


def main(given: Path, result: Path) -> None:
    end_with_snakemake()
    job: SamplingJob = pickle.loads(given.read_bytes())
    rollouts = sample(job)
    result.write_bytes(pickle.dumps((rollouts, gpu_memory_peak())))


if __name__ == "__main__":
    from g2d.rollouts import own_process  # noqa: PLW0406 -- the instance whose classes are pickled

    own_process.main(Path(sys.argv[1]), Path(sys.argv[2]))
