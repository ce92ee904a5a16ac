"""Rule train_kto: KTO on the judged rollouts of a harvest, from a fresh M0 or from pi_K."""

from g2d.jobs.shared_imports import run


def main(snakemake):
    # Here, for a job that shares its imports makes none of its own.
    from g2d.experiment.training import training
    from g2d.problems import read_problems
    from g2d.regimes.kto import Kto, judged_rollouts, train_kto
    from g2d.rollouts.rollout import read_rollouts
    from g2d.rollouts.tokens import with_token_ids

    with training(snakemake) as job:
        kto = Kto.model_validate(job.settings["kto"] | {"regime": "kto"})
        rows = judged_rollouts(
            with_token_ids(read_rollouts(snakemake.input.rollouts), job.base),
            read_problems(snakemake.input.problems),
            kto.rollouts,
            job.seed,
        )
        log = train_kto(job.base, rows, kto=kto, start=job.start, **job.arguments)
        n_right = sum(row["label"] for row in rows)
        n_steps = sum("loss" in row for row in log)
        regime = snakemake.wildcards.variant + snakemake.wildcards.regime
        job.leave(regime, log, n_right=n_right, n_wrong=len(rows) - n_right, gradient_steps=n_steps)


if __name__ == "__main__":
    run(main, snakemake)
