"""Train the embedded demonstration model M0."""

from pathlib import Path

from g2d.jobs.stage import stage
from g2d.policies import write_policy
from g2d.policies.pretrained import make_base
from g2d.policies.settings import ScratchModel


def main(snakemake):
    with stage(snakemake):
        source, folder = ScratchModel.model_validate(snakemake.params.source), Path(snakemake.output.weights).parent
        write_policy(snakemake.output.policy, make_base(snakemake.wildcards.model, source, folder))


if __name__ == "__main__":
    main(snakemake)
