"""Rule train_grpo_auto: warm M0 up with GRPO until H and mu of a small harvest decline (paper, recipe step 3)."""

from g2d.jobs.shared_imports import run


def main(snakemake):
    # Here, for a job that shares its imports makes none of its own.
    from g2d.experiment.training import training
    from g2d.problems import read_problems
    from g2d.problems.prompts import Prompt
    from g2d.regimes.grpo_auto import train_until_decline
    from g2d.regimes.warmup import AutoStop, Warmup
    from g2d.rollouts.settings import Harvest
    from g2d.tables.frames import write_table

    with training(snakemake) as job:
        settings = job.settings
        kept = {
            "steps": [job.k],
            "group_sizes": [job.group_size],
            "keep_rollouts": job.config.warmup.keep_rollouts,
        }
        outcome = train_until_decline(
            job.base,
            read_problems(snakemake.input.problems),
            auto=AutoStop.model_validate(settings["auto"]),
            warmup=Warmup.model_validate(settings["warmup"] | kept),
            harvest=Harvest.model_validate(settings["harvest"]),
            prompt=Prompt.model_validate(settings["prompt"]),
            group_size=job.group_size,
            policy_id=job.policy_id,
            engine=job.config.engine,
            workers=snakemake.threads,
            **job.arguments,
        )
        write_table(snakemake.output.probes, outcome.table)
        job.leave(
            "auto/grpo",
            outcome.log,
            k=outcome.chosen.step,
            parts=("adapter", "rollouts.parquet"),
            steps_trained=outcome.probes[-1].step,
        )


if __name__ == "__main__":
    run(main, snakemake)
