"""Rule train_grpo_auto: warm M0 up with GRPO until H and mu of a small harvest decline (paper, recipe step 3)."""

from pathlib import Path

from g2d.experiment.config import load
from g2d.jobs.files import install, sha256
from g2d.jobs.shared_imports import run
from g2d.jobs.stage import stage
from g2d.policies import Policy, read_own_policy, write_policy
from g2d.policies.settings import Lora
from g2d.problems import read_problems
from g2d.problems.prompts import Prompt
from g2d.regimes.auto_stop import train_until_decline
from g2d.regimes.checkpoints import work_folder
from g2d.regimes.training import tracking_arguments, write_metrics
from g2d.regimes.warmup import AutoStop, Warmup
from g2d.rollouts.settings import Harvest
from g2d.tables.tables import write_table


def main(snakemake):
    folder = Path(snakemake.output.policy).parent
    # The work folder is no output, so it outlives an attempt that fails; it vanishes when every output is there.
    with work_folder(folder / "work") as work, stage(snakemake) as meter:
        settings, wildcards = snakemake.params.settings, snakemake.wildcards
        own = load(snakemake.config).for_model(wildcards.model)  # what does not change the result
        kept = {
            "steps": [int(wildcards.k)],
            "group_sizes": [int(wildcards.g)],
            "keep_rollouts": own.warmup.keep_rollouts,
        }
        base, policy_id = read_own_policy(snakemake.input.base), str(folder.relative_to("results"))
        outcome = train_until_decline(
            base,
            read_problems(snakemake.input.problems),
            auto=AutoStop.model_validate(settings["auto"]),
            warmup=Warmup.model_validate(settings["warmup"] | kept),
            harvest=Harvest.model_validate(settings["harvest"]),
            lora=Lora.model_validate(settings["lora"]),
            prompt=Prompt.model_validate(settings["prompt"]),
            group_size=int(wildcards.g),
            seed=int(wildcards.seed),
            work=work,
            policy_id=policy_id,
            engine=own.engine,
            checkpointing=own.checkpoints,
            tracking=tracking_arguments(own.logging, policy_id),
            workers=snakemake.threads,
            meter=meter,
            version=snakemake.params.version,
        )
        write_metrics(snakemake.output.metrics, outcome.log)
        write_table(snakemake.output.probes, outcome.table)
        for part in ("adapter", "rollouts.parquet"):
            install(work / part, folder / part)
        policy = Policy(
            policy_id=policy_id,
            model=wildcards.model,
            regime="auto/grpo",
            base=base.base,
            group_size=int(wildcards.g),
            k=outcome.chosen.step,
            seed=int(wildcards.seed),
            revision=base.revision,
            base_files=base.base_files,
            adapter=str(folder / "adapter"),
            weights_sha256=sha256(snakemake.output.adapter),
            settings=settings | {"steps_trained": outcome.probes[-1].step},
        )
        write_policy(snakemake.output.policy, policy)


if __name__ == "__main__":
    run(main, snakemake)
