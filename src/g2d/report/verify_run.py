"""`g2d verify-run`: recompute finished jobs of a results folder, and compare what they wrote.

All files are compared with their recorded digests. All cheap jobs run again (problems, pairs, tables, page), and
`--jobs` trainings, harvests and evaluations, drawn with probabilities proportional to their recorded hours. The exit
status is 0 if all is identical (on a GPU: within bounds), 1 if something is different, 3 if a job is not comparable.
"""

from __future__ import annotations

import argparse
import random
import secrets
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from g2d import __version__
from g2d.experiment.config import read
from g2d.graph.build import build
from g2d.graph.job import DEVICE_STAGES, Job
from g2d.jobs.attempts import kept, read_attempts
from g2d.jobs.cost import Cost, read_cost
from g2d.jobs.digests import VERIFIED, digests_in
from g2d.jobs.files import read_json, sha256, write_json
from g2d.jobs.stage import FETCHING
from g2d.plain import say
from g2d.report.differences import beyond_bounds, differences
from g2d.report.recompute import link_beside, outputs, recompute
from g2d.report.replication import other_software
from g2d.settings.arguments import at_least

BATCHES = "generation on a GPU is not batch-invariant (vLLM#51187)"
SHOWN = 3  # reasons that are printed
# Rules that need their own call of Snakemake.
ALONE = {*FETCHING, "embedded_model", "gguf_model", "make_tables", "record_provenance"}
Status = Literal["identical", "within bounds", "different", "not comparable"]


@dataclass(frozen=True)
class Check:
    job: str
    status: Status
    reasons: Sequence[str] = ()  # differences, and why they are expected or not comparable


def register(subparsers: Any) -> None:
    parser = subparsers.add_parser("verify-run", help="recompute finished jobs and compare", description=__doc__)
    parser.add_argument("results", nargs="?", type=Path, default=Path("results"), help="the folder (default: results)")
    parser.add_argument("--jobs", type=at_least(0, int), default=3, help="that train or sample (default: 3)")
    parser.add_argument("--seed", type=at_least(0, int), help="of the draw (default: random)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    results: Path = arguments.results
    jobs = finished(results)
    digests = {file: digest for file, digest in digests_in(results).items() if file.is_file()}
    changed = [str(file.relative_to(results)) for file, digest in digests.items() if sha256(file) != digest]
    say(f"{len(digests) - len(changed)} of {len(digests)} files are as recorded")
    for file in changed:
        say(f"  {file}: differs from its recorded digest")
    seed = secrets.randbelow(2**32) if arguments.seed is None else arguments.seed
    costs = {job: _costs(results, job) for job in jobs if job.stage in DEVICE_STAGES}
    drawn, cheap = draw(costs, arguments.jobs, seed), [job for job in jobs if job not in costs]
    share = sum(_seconds(costs[job]) for job in drawn) / (sum(map(_seconds, costs.values())) or 1)
    say(f"{len(cheap)} cheap jobs, and {len(drawn)} of {len(costs)} others with {share:.0%} of the hours (seed {seed})")
    checks = []
    for check in verify(results, cheap, {job: costs[job] for job in drawn}):
        checks.append(check)
        more = [f"{len(check.reasons) - SHOWN} more"] if len(check.reasons) > SHOWN else []
        why = "; ".join([*check.reasons[:SHOWN], *more])
        say(f"  {check.job}: {check.status}{why and f' ({why})'}")
    statuses = Counter(check.status for check in checks)
    say(", ".join(f"{n} {status}" for status, n in statuses.items()))
    record = {"g2d": __version__, "date": datetime.now(UTC).isoformat(timespec="seconds"), "seed": seed}
    record |= {"share_of_hours": share, "files": len(digests), "changed": changed}
    write_json(results / VERIFIED, record | {"checks": [asdict(check) for check in checks]})
    return 1 if changed or statuses["different"] else 3 if statuses["not comparable"] else 0


def finished(results: Path) -> list[Job]:
    """Return the finished jobs that the target `all` needs. Shards belong to the job that merges them.

    Raises:
        ConfigError: `config.yaml` is missing or cannot be read.
    """
    config = read(results / "config.yaml")
    with TemporaryDirectory(prefix="g2d-") as place:
        link_beside(results, Path(place))
        Path(place, "results").symlink_to(results.absolute())
        with chdir(place):
            jobs = build(config, after=True).behind("all")
    jobs = [job for job in jobs if job.merged_into is None]
    return [job for job in jobs if all((results / Path(file).relative_to("results")).exists() for file in job.done)]


def _costs(results: Path, job: Job) -> list[Cost]:
    """Return the recorded costs of a job that trains or samples, and of its shards."""
    bill = read_cost(results / Path(job.done[-1]).relative_to("results"))
    shards = f"{Path(job.done[0]).with_suffix('')}.shards/"
    return [bill.own, *(cost for cost in bill.ancestry if cost.job.startswith(shards))]


def _seconds(costs: Sequence[Cost]) -> float:
    return sum(cost.device_s for cost in costs)


def draw(costs: Mapping[Job, Sequence[Cost]], n: int, seed: int) -> list[Job]:
    """Draw n jobs one by one, each with probabilities proportional to their costs (Efraimidis and Spirakis 2006)."""
    numbers = random.Random(seed)
    order = {job: numbers.random() ** (1 / max(_seconds(cost), 1e-9)) for job, cost in costs.items()}
    return sorted(order, key=lambda job: -order[job])[:n]


def verify(results: Path, cheap: Sequence[Job], drawn: Mapping[Job, Sequence[Cost]]) -> Iterator[Check]:
    """Recompute jobs and compare what they wrote, first the provenance: it names the software of this machine."""
    groups: dict[str, list[Job]] = {"record_provenance": []}
    for job in cheap:
        groups.setdefault(job.rule if job.rule in ALONE else str(bool(vars(job.wildcards))), []).append(job)
    todo: list[tuple[list[Job], int | None]] = [(jobs, None) for jobs in groups.values() if jobs]
    todo += [([job], max(cost.threads or 1 for cost in costs)) for job, costs in drawn.items()]
    attempts = kept(read_attempts(results / "attempts")).values()  # tables read all attempts that had ended
    tables_began = max((one.started for one in attempts if one.cost.stage == "make_tables"), default=0.0)
    software: list[str] = []
    for jobs, threads in todo:
        with TemporaryDirectory(prefix="g2d-") as place:
            failed, again = recompute(results, Path(place), jobs, threads, tables_began), Path(place) / "results"
            records = [folder / "provenance.json" for folder in (results, again)]
            if jobs[0].rule == "record_provenance" and not failed:
                software = _others(other_software(*map(read_json, records)))
            for job in jobs:
                name = f"{job.stage} {job.name.removeprefix('results/').removesuffix('cost').rstrip('./')}"
                check = (
                    ("not comparable", [failed[job]])
                    if job in failed
                    else _compared(results, again, job, software, drawn.get(job))
                )
                yield Check(name, *check)


def _others(software: Mapping[str, Sequence[Any]]) -> list[str]:
    """Describe the differences between the recorded software and this machine's, as far as both are known."""
    unknown = {"workflow.dirty"} | {key for key in ("workflow.commit",) if None in software.get(key, ())}
    return [f"{key}: {old} recorded, {new} here" for key, (old, new) in software.items() if key not in unknown]


def _compared(
    results: Path, again: Path, job: Job, software: Sequence[str], costs: Sequence[Cost] | None
) -> tuple[Status, Sequence[str]]:
    files = list(outputs(results, job))
    reasons = [f"{file.name}: {how}" for file in files for how in differences(results / file, again / file)]
    if not reasons:
        return "identical", []
    recorded, here = ("", "") if costs is None else (costs[0].device, _costs(again, job)[0].device)
    others = [*software, *([f"{recorded} recorded, {here} here"] if here != recorded else [])]
    if others:
        return "not comparable", [*others, *reasons]
    if recorded in ("", "cpu", "unknown"):
        return "different", reasons
    beyond = [f"{file.name}: {how}" for file in files if (how := beyond_bounds(results / file, again / file))]
    return ("different", beyond) if beyond else ("within bounds", [BATCHES, *reasons])
