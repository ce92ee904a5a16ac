"""Rule embedded_model: copy the demonstration model M0 out of the package."""

from pathlib import Path

from g2d.jobs.files import atomic_folder, sha256
from g2d.jobs.stage import stage
from g2d.policies import Policy, write_policy
from g2d.policies.embedded import copy_embedded
from g2d.policies.policy import base_files


def main(snakemake):
    with stage(snakemake):
        name, weights = snakemake.wildcards.model, Path(snakemake.output.files[0])
        with atomic_folder(weights.parent) as draft:
            draft.mkdir()
            copy_embedded(draft)
        policy = Policy(
            policy_id=f"{name}/base",
            model=name,
            regime="base",
            base=str(weights.parent),
            weights_sha256=sha256(weights),
            base_files=base_files(weights.parent),
            settings=snakemake.params.source,
        )
        write_policy(snakemake.output.policy, policy)


if __name__ == "__main__":
    main(snakemake)
