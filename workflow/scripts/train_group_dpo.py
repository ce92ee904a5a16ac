"""Rule train_group_dpo: DPO on all pairs of a harvest's rollouts, from a fresh M0 or from pi_K."""

from g2d.jobs.shared_imports import run


def main(snakemake):
    # Here, for a job that shares its imports makes none of its own.
    from g2d.experiment.training import training
    from g2d.problems import read_problems
    from g2d.regimes.group_dpo import GroupDpo, harvested_groups, train_group_dpo
    from g2d.rollouts.rollout import read_rollouts
    from g2d.rollouts.tokens import with_token_ids

    with training(snakemake) as job:
        settings = GroupDpo.model_validate(job.settings["group_dpo"] | {"regime": "group_dpo"})
        found = harvested_groups(
            with_token_ids(read_rollouts(snakemake.input.rollouts), job.base),
            read_problems(snakemake.input.problems),
            settings,
            job.seed,
        )
        log = job.train(train_group_dpo, job.base, found, group_dpo=settings, start=job.start)
        n_pairs, n_steps = sum(len(group.pairs) for group in found), sum("loss" in row for row in log)
        job.leave(
            snakemake.wildcards.variant + snakemake.wildcards.regime, log, n_pairs=n_pairs, gradient_steps=n_steps
        )


if __name__ == "__main__":
    run(main, snakemake)
