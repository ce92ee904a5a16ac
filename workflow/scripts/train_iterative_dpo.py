"""Rule train_iterative_dpo: one round of DPO, on pairs of the policy of the round before and from that policy."""

from g2d.jobs.shared_imports import run


def main(snakemake):
    # Here, for a job that shares its imports makes none of its own.
    from g2d.experiment.training import training
    from g2d.regimes.dpo import Dpo, train_dpo
    from g2d.rollouts.pairs import read_pairs
    from g2d.rollouts.tokens import pairs_with_token_ids

    with training(snakemake) as job:
        pairs = pairs_with_token_ids(read_pairs(snakemake.input.pairs), job.base)
        dpo = Dpo.model_validate(job.settings["dpo"])
        log = job.train(train_dpo, job.base, pairs, dpo=dpo, start=job.start)
        n_steps = sum("loss" in row for row in log)
        job.leave(snakemake.wildcards.regime, log, n_pairs=len(pairs), gradient_steps=n_steps)


if __name__ == "__main__":
    run(main, snakemake)
