"""Rule record_provenance: versions, commit, revisions, digests and seeds behind the results."""

from g2d.experiment.config import load
from g2d.jobs.files import read_json, write_json
from g2d.jobs.stage import stage
from g2d.policies import read_policy
from g2d.report.provenance import provenance
from g2d.tables.bills import COST_COLUMNS
from g2d.tables.frames import read_table


def main(snakemake):
    with stage(snakemake):
        policies = [read_policy(path) for path in [*snakemake.input.base, *snakemake.input.get("policies", [])]]
        manifests = dict(zip(snakemake.params.names, map(read_json, snakemake.input.manifests), strict=True))
        devices = read_table(snakemake.input.bill, COST_COLUMNS)["device"].dropna()
        config = load(snakemake.params.config)
        record = provenance(config, policies, manifests, devices, f"{snakemake.scriptdir}/record_provenance.py")
        write_json(snakemake.output[0], record)


if __name__ == "__main__":
    main(snakemake)
