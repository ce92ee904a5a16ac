"""Rule train_grpo: warm M0 up with GRPO to step K, from M0 or from the checkpoint of a smaller K."""

from pathlib import Path

from g2d.jobs.shared_imports import run


def main(snakemake):
    # Here, for a job that shares its imports makes none of its own.
    from g2d.experiment.training import training
    from g2d.policies import read_policy
    from g2d.problems import read_problems
    from g2d.problems.prompts import Prompt
    from g2d.regimes.asked import AskedPrompts
    from g2d.regimes.grpo import train_grpo
    from g2d.regimes.warmup import Warmup
    from g2d.rewards.catalogue import reward_settings

    with training(snakemake) as job:
        own = job.config.warmup_of(snakemake.wildcards.variant.rstrip("/"))
        kept = {"steps": [job.k], "group_sizes": [job.group_size], "keep_rollouts": own.keep_rollouts}
        checkpoint = Path(snakemake.input.checkpoint[0]) if snakemake.input.checkpoint else None
        log = job.train(
            train_grpo,
            job.base,
            [problem for file in snakemake.input.problems for problem in read_problems(file)],
            warmup=Warmup.model_validate(job.settings["warmup"] | kept),
            prompt=Prompt.model_validate(job.settings["prompt"]),
            group_size=job.group_size,
            k=job.k,
            reward=reward_settings(job.settings.get("reward")),
            prompts=AskedPrompts.model_validate(job.settings.get("prompts", {})),
            resume_from=checkpoint,
            engine=job.config.engine,
        )
        job.leave(
            f"{snakemake.wildcards.variant}grpo",
            log,
            parts=("adapter", "checkpoint", "rollouts.parquet"),
            continued_from=read_policy(checkpoint.parent / "policy.json").k if checkpoint else None,
        )


if __name__ == "__main__":
    run(main, snakemake)
