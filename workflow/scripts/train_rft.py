"""Rule train_rft: SFT on the right completions of a harvest, from a fresh M0 or from pi_K."""

from g2d.jobs.shared_imports import run


def main(snakemake):
    # Here, for a job that shares its imports makes none of its own.
    from g2d.experiment.training import training
    from g2d.problems import read_problems
    from g2d.regimes.rft import Rft, chosen_completions, right_completions, train_rft
    from g2d.rollouts.pairs import read_pairs
    from g2d.rollouts.rollout import read_rollouts
    from g2d.rollouts.tokens import pairs_with_token_ids, with_token_ids

    with training(snakemake) as job:
        rft = Rft.model_validate(job.settings["rft"] | {"regime": "rft"})
        if rft.needs_pairs:
            examples = chosen_completions(pairs_with_token_ids(read_pairs(snakemake.input.pairs[0]), job.base))
        else:
            examples = right_completions(
                with_token_ids(read_rollouts(snakemake.input.rollouts), job.base),
                read_problems(snakemake.input.problems),
                rft.per_prompt,
                job.seed,
            )
        log = job.train(train_rft, job.base, examples, rft=rft, start=job.start)
        n_steps = sum("loss" in row for row in log)
        job.leave(
            snakemake.wildcards.variant + snakemake.wildcards.regime,
            log,
            n_completions=len(examples),
            gradient_steps=n_steps,
        )


if __name__ == "__main__":
    run(main, snakemake)
