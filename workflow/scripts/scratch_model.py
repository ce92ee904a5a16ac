"""Rule scratch_model: train the embedded demonstration model M0."""

from pathlib import Path

from g2d.jobs.files import atomic_folder, sha256
from g2d.jobs.stage import stage
from g2d.policies import Policy, write_policy
from g2d.policies.policy import base_files
from g2d.policies.settings import ScratchModel


def main(snakemake):
    with stage(snakemake):
        from g2d.policies.scratch import train_scratch  # torch and transformers: on this job's bill and in its log

        name, folder = snakemake.wildcards.model, Path(snakemake.output.weights).parent
        settings = ScratchModel.model_validate(snakemake.params.source)
        with atomic_folder(folder) as draft:
            train_scratch(settings, draft)
        policy = Policy(
            policy_id=f"{name}/base",
            model=name,
            regime="base",
            base=str(folder),
            weights_sha256=sha256(snakemake.output.weights),
            base_files=base_files(folder),
            settings=snakemake.params.source,
        )
        write_policy(snakemake.output.policy, policy)


if __name__ == "__main__":
    main(snakemake)
