"""Record versions, commit, revisions, digests and seeds."""

from pathlib import Path

from g2d.checks.load import load
from g2d.jobs.files import read_json, write_json
from g2d.jobs.stage import stage
from g2d.policies import read_policy
from g2d.report.provenance import provenance, steps_without_loss
from g2d.tables.frames import read_table
from g2d.tables.trainings import COST_COLUMNS


def main(snakemake):
    with stage(snakemake):
        policies = [read_policy(path) for path in [*snakemake.input.base, *snakemake.input.get("policies", [])]]
        lost = {}
        for path in map(Path, snakemake.input.get("metrics", [])):
            steps = steps_without_loss(path)
            if steps:
                lost[path.parent.relative_to("results").as_posix()] = steps
        manifests = {}
        for name, path in zip(snakemake.params.names, snakemake.input.manifests, strict=True):
            manifests[name] = read_json(path)
        devices = read_table(snakemake.input.bill, COST_COLUMNS)["device"].dropna()
        config = load(snakemake.config)
        record = provenance(config, policies, manifests, devices, f"{snakemake.scriptdir}/record_provenance.py", lost)
        write_json(snakemake.output[0], record)


if __name__ == "__main__":
    main(snakemake)
