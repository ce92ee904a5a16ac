"""Choose the K of a training that scores best on the development prompts."""

from pathlib import Path

from g2d.experiment.training import take_over
from g2d.jobs.stage import stage
from g2d.policies.policy import read_own_policy
from g2d.regimes.regime import SELECTED
from g2d.rollouts.rollout import TEXTLESS, read_rollouts
from g2d.tables.choices import OF_REPLIES, best, checkpoint_table
from g2d.tables.frames import write_table


def main(snakemake):
    with stage(snakemake):
        given, out = snakemake.input, snakemake.output
        candidates = [read_own_policy(path) for path in given.policies]
        steps = [policy.k for policy in candidates]
        table = checkpoint_table(
            steps,
            [read_rollouts(path, TEXTLESS) for path in given.answers],
            [read_rollouts(path, OF_REPLIES) for path in given.replies],
        )
        write_table(out.selection, table)
        regime = f"{snakemake.wildcards.owner}/{SELECTED}"
        take_over(candidates[best(table)], Path(out.policy).parent, regime, steps)


if __name__ == "__main__":
    main(snakemake)
