"""Rule train_semi_online_dpo_auto: DPO on fresh rollouts until H and mu of a small harvest decline."""

from g2d.jobs.shared_imports import run


def main(snakemake):
    # Here, for a job that shares its imports makes none of its own.
    from g2d.experiment.training import training
    from g2d.problems import read_problems
    from g2d.problems.prompts import Prompt
    from g2d.regimes.semi_online_auto import train_semi_online_until_decline
    from g2d.regimes.semi_online_keys import SemiOnlineDpo
    from g2d.rollouts.settings import Harvest
    from g2d.tables.frames import write_table

    with training(snakemake) as job:
        own = job.config.regimes[snakemake.wildcards.regime]
        kept = {"regime": "semi_online_dpo", "steps": [job.k], "keep_rollouts": own.keep_rollouts}
        outcome = train_semi_online_until_decline(
            job.base,
            read_problems(snakemake.input.problems),
            settings=SemiOnlineDpo.model_validate(
                job.settings["semi_online_dpo"] | kept | {"auto": job.settings["auto"]}
            ),
            harvest=Harvest.model_validate(job.settings["harvest"]),
            prompt=Prompt.model_validate(job.settings["prompt"]),
            policy_id=job.policy_id,
            start=job.start,
            engine=job.config.engine,
            workers=snakemake.threads,
            **job.arguments,
        )
        write_table(snakemake.output.probes, outcome.table)
        job.leave(
            snakemake.wildcards.regime,
            outcome.log,
            k=outcome.chosen.step,
            parts=("adapter", "rollouts.parquet"),
            steps_trained=outcome.probes[-1].step,
        )


if __name__ == "__main__":
    run(main, snakemake)
