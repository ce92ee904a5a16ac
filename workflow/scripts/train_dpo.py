"""Rule train_dpo: DPO on harvested pairs, from a fresh M0 or, as an ablation, from pi_K."""

from g2d.jobs.shared_imports import run


def main(snakemake):
    # Here, for a job that shares its imports makes none of its own.
    from g2d.experiment.training import training
    from g2d.policies import read_policy
    from g2d.regimes.dpo import Dpo, train_dpo
    from g2d.rollouts.pairs import read_pairs, subsample
    from g2d.rollouts.tokens import pairs_with_token_ids

    with training(snakemake) as job:
        pairs = pairs_with_token_ids(read_pairs(snakemake.input.pairs), job.base)
        if snakemake.input.matched:
            pairs = subsample(pairs, min(len(read_pairs(file)) for file in snakemake.input.matched), job.seed)
        dpo = Dpo.model_validate(job.settings["dpo"])
        log = job.train(train_dpo, job.base, pairs, dpo=dpo, start=job.start)
        stopped = snakemake.input.warmup  # the record of a warm-up that stopped by itself: after how many steps
        job.leave(
            snakemake.wildcards.variant + snakemake.wildcards.regime,
            log,
            k=read_policy(stopped[0]).k if stopped else None,
            n_pairs=len(pairs),
            gradient_steps=sum("loss" in row for row in log),
        )


if __name__ == "__main__":
    run(main, snakemake)
