"""Copy the demonstration model M0 out of the package."""

from pathlib import Path

from g2d.jobs.stage import stage
from g2d.policies import write_policy
from g2d.policies.model_keys import EmbeddedModel
from g2d.policies.pretrained import make_base


def main(snakemake):
    with stage(snakemake):
        source = EmbeddedModel.model_validate(snakemake.params.source)
        folder = Path(snakemake.output.model)
        write_policy(snakemake.output.policy, make_base(snakemake.wildcards.model, source, folder))


if __name__ == "__main__":
    main(snakemake)
