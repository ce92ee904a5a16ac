"""Rule train_grpo: warm M0 up with GRPO to step K, from M0 or from the checkpoint of a smaller K."""

from pathlib import Path

from g2d.experiment.config import load
from g2d.jobs.files import install, sha256
from g2d.jobs.shared_imports import run
from g2d.jobs.stage import stage
from g2d.policies import Policy, read_own_policy, read_policy, write_policy
from g2d.policies.settings import Lora
from g2d.problems import read_problems
from g2d.problems.prompts import Prompt
from g2d.regimes.checkpoints import work_folder
from g2d.regimes.grpo import train_grpo
from g2d.regimes.training import tracking_arguments, write_metrics
from g2d.regimes.warmup import Warmup


def main(snakemake):
    folder = Path(snakemake.output.policy).parent
    # The work folder is no output, so it outlives an attempt that fails; it vanishes when every output is there.
    with work_folder(folder / "work") as work, stage(snakemake) as meter:
        settings, wildcards, k = snakemake.params.settings, snakemake.wildcards, int(snakemake.wildcards.k)
        own = load(snakemake.config).for_model(wildcards.model)  # what does not change the result
        kept = {
            "steps": [k],
            "group_sizes": [int(wildcards.g)],
            "keep_rollouts": own.warmup_of(wildcards.variant.rstrip("/")).keep_rollouts,
        }
        warmup = Warmup.model_validate(settings["warmup"] | kept)
        base, policy_id = read_own_policy(snakemake.input.base), str(folder.relative_to("results"))
        checkpoint = Path(snakemake.input.checkpoint[0]) if snakemake.input.checkpoint else None
        continued_from = read_policy(checkpoint.parent / "policy.json").k if checkpoint else None
        log = train_grpo(
            base,
            read_problems(snakemake.input.problems),
            warmup=warmup,
            lora=Lora.model_validate(settings["lora"]),
            prompt=Prompt.model_validate(settings["prompt"]),
            group_size=int(wildcards.g),
            k=k,
            seed=int(wildcards.seed),
            work=work,
            resume_from=checkpoint,
            engine=own.engine,
            checkpointing=own.checkpoints,
            tracking=tracking_arguments(own.logging, policy_id),
            meter=meter,
            version=snakemake.params.version,
        )
        write_metrics(snakemake.output.metrics, log)
        for part in ("adapter", "checkpoint", "rollouts.parquet"):
            install(work / part, folder / part)
        policy = Policy(
            policy_id=policy_id,
            model=wildcards.model,
            regime=f"{wildcards.variant}grpo",
            base=base.base,
            group_size=int(wildcards.g),
            k=k,
            seed=int(wildcards.seed),
            revision=base.revision,
            base_files=base.base_files,
            adapter=str(folder / "adapter"),
            weights_sha256=sha256(snakemake.output.adapter),
            continued_from=continued_from,
            settings=settings,
        )
        write_policy(snakemake.output.policy, policy)


if __name__ == "__main__":
    run(main, snakemake)
