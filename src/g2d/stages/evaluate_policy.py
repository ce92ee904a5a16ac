"""Body of the jobs that evaluate a policy: one engine answers all benchmarks.

Snakemake deletes the outputs of a job before it starts and after it fails. Finished answers are therefore kept in
`results/answers`, and a later job copies those whose policy, problems and settings are the same.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from g2d.jobs.cost import Meter, cpu_seconds, write_cost
from g2d.jobs.digests import ANSWERS
from g2d.jobs.files import atomic, atomic_folder
from g2d.jobs.snakemake_jobs import Snakemake
from g2d.plain import say
from g2d.problems import Problem, read_problems
from g2d.regimes.common.checkpoints import job_digest, require_intact, seal
from g2d.rollouts.engine import Decoding
from g2d.rollouts.rollout import write_rollouts
from g2d.stages.sample_rollouts import ROLLOUTS, PolicySampler

COST = "cost.json"


@dataclass(frozen=True)
class Benchmark:
    """A benchmark of a job; `kept` is the folder of its finished answers."""

    problems: Sequence[Problem]
    answers: Path
    cost: Path
    digest: str

    @property
    def kept(self) -> Path:
        below_results = self.answers.with_suffix("").relative_to("results")
        return Path("results", ANSWERS, below_results)

    @property
    def is_finished(self) -> bool:
        try:
            return require_intact(self.kept)["job"] == self.digest
        except ValueError:
            return False


def evaluate_benchmarks(snakemake: Snakemake, meter: Meter, decoding: Decoding) -> None:
    """Write answers and costs for each benchmark.

    The first benchmark's costs include the start of the engine.
    """
    sampler = PolicySampler(snakemake, decoding)
    benchmarks = benchmarks_of(snakemake, sampler)
    due = [benchmark for benchmark in benchmarks if not benchmark.is_finished]
    say(f"{len(benchmarks) - len(due)} of {len(benchmarks)} benchmarks were answered by an earlier job")
    for benchmark in due:
        sampler.expect(benchmark.problems)
    began = meter.began
    cpu_before = meter.cpu_before
    for benchmark in due:
        job = str(benchmark.cost.with_suffix(""))
        own = Meter(job, meter.stage, threads=meter.threads, began=began, cpu_before=cpu_before)
        answer(benchmark, sampler, own)
        meter.tokens_generated += own.tokens_generated
        began = time.perf_counter()
        cpu_before = cpu_seconds()
    for benchmark in benchmarks:
        copy(benchmark.kept / ROLLOUTS, benchmark.answers)
        copy(benchmark.kept / COST, benchmark.cost)


def benchmarks_of(snakemake: Snakemake, sampler: PolicySampler) -> list[Benchmark]:
    """Return the benchmarks of the outputs; the inputs may have more."""
    sources = {Path(source).stem: source for source in snakemake.input.benchmarks}
    benchmarks = []
    for answers, cost in zip(snakemake.output.answers, snakemake.output.costs, strict=True):
        problems = read_problems(sources[Path(answers).stem])
        digest = job_digest(sampler.job(problems))
        benchmarks.append(Benchmark(problems, Path(answers), Path(cost), digest))
    return benchmarks


def answer(benchmark: Benchmark, sampler: PolicySampler, meter: Meter) -> None:
    """Answer a benchmark, and keep its answers."""
    parts = benchmark.kept.with_name(f"{benchmark.kept.name}.parts")
    with sampler.verifier() as verifier:
        rollouts = sampler.sample(benchmark.problems, parts, meter, verifier)
    with atomic_folder(benchmark.kept) as draft:
        draft.mkdir()
        write_rollouts(draft / ROLLOUTS, rollouts)
        write_cost(draft / COST, meter.spent())
        seal(draft, 0, benchmark.digest)


def copy(source: Path, to: Path) -> None:
    with atomic(to) as draft:
        shutil.copyfile(source, draft)
