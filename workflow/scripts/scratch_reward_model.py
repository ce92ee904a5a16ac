"""Train the embedded reward model."""

from pathlib import Path

from g2d.jobs.files import atomic_folder
from g2d.jobs.stage import stage
from g2d.rewards.scratch_model import ScratchRewardModel, train_scratch_reward


def main(snakemake):
    with stage(snakemake), atomic_folder(Path(snakemake.output.weights).parent) as draft:
        train_scratch_reward(ScratchRewardModel(reward="scratch_model", **snakemake.params.source), draft)


if __name__ == "__main__":
    main(snakemake)
