"""Rule train_semi_online_dpo: DPO on fresh rollouts to update K, from a smaller K, its start or M0."""

from pathlib import Path

from g2d.jobs.shared_imports import run


def main(snakemake):
    # Here, for a job that shares its imports makes none of its own.
    from g2d.experiment.training import training
    from g2d.policies import read_policy
    from g2d.problems import read_problems
    from g2d.problems.prompts import Prompt
    from g2d.regimes.semi_online_dpo import SemiOnlineDpo, train_semi_online_dpo
    from g2d.rewards.catalogue import reward_settings

    with training(snakemake) as job:
        own = job.config.regimes[snakemake.wildcards.regime]
        kept = {"regime": "semi_online_dpo", "steps": [job.k], "keep_rollouts": own.keep_rollouts}
        checkpoint = Path(snakemake.input.checkpoint[0]) if snakemake.input.checkpoint else None
        log = job.train(
            train_semi_online_dpo,
            job.base,
            [problem for file in snakemake.input.problems for problem in read_problems(file)],
            settings=SemiOnlineDpo.model_validate(job.settings["semi_online_dpo"] | kept),
            prompt=Prompt.model_validate(job.settings["prompt"]),
            k=job.k,
            reward=reward_settings(job.settings.get("reward")),
            start=job.start,
            resume_from=checkpoint,
            engine=job.config.engine,
        )
        job.leave(
            snakemake.wildcards.regime,
            log,
            parts=("adapter", "checkpoint", "rollouts.parquet"),
            continued_from=read_policy(checkpoint.parent / "policy.json").k if checkpoint else None,
        )


if __name__ == "__main__":
    run(main, snakemake)
