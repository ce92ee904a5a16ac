"""Record versions, commit, revisions, digests and seeds."""

from pathlib import Path

from g2d.checks.load import load
from g2d.jobs.files import read_json, write_json
from g2d.jobs.stage import stage
from g2d.policies import read_policy
from g2d.report.provenance import provenance, steps_without_loss
from g2d.tables.costs import COST_COLUMNS
from g2d.tables.frames import read_table


def main(snakemake):
    with stage(snakemake):
        records = [Path(path) for path in [*snakemake.input.base, *snakemake.input.get("policies", [])]]
        policies = [read_policy(path) for path in records]
        steps = {
            policy.policy_id: steps_without_loss(path.with_name("metrics.jsonl"))
            for policy, path in zip(policies, records, strict=True)
        }
        lost = {policy: n for policy, n in steps.items() if n}
        manifests = dict(zip(snakemake.params.names, map(read_json, snakemake.input.manifests), strict=True))
        devices = read_table(snakemake.input.bill, COST_COLUMNS)["device"].dropna()
        config = load(snakemake.config)
        record = provenance(config, policies, manifests, devices, f"{snakemake.scriptdir}/record_provenance.py", lost)
        write_json(snakemake.output[0], record)


if __name__ == "__main__":
    main(snakemake)
