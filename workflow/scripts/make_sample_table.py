"""Rule make_sample_table: pass@k and maj@n of every policy, from several answers to every problem."""

from g2d.experiment import grid
from g2d.experiment.config import load
from g2d.experiment.samples import sample_files
from g2d.jobs.stage import stage
from g2d.policies import read_policy
from g2d.rollouts.rollout import read_rollouts
from g2d.tables.frames import write_table
from g2d.tables.samples import READ, sample_table
from g2d.verifier import Verifier


def main(snakemake):
    with stage(snakemake), Verifier(snakemake.threads) as verifier:
        config = load(snakemake.params.config)
        records = {key: read_policy(f"results/{key.folder}/policy.json") for key in grid.policies(config)}
        shown = {key: key for key in grid.with_steps_taken(records)}  # with the steps that it took
        samples = {
            (shown[policy], benchmark): read_rollouts(file, READ)
            for (policy, benchmark), file in sample_files(config).items()
        }

        def equal(pairs):
            judged = verifier.verify([(first, rf"\boxed{{{second}}}") for first, second in pairs])
            return [judgement.verdict == "correct" for judgement in judged]

        write_table(snakemake.output.samples, sample_table(samples, equal))


if __name__ == "__main__":
    main(snakemake)
