"""Rule train_dpo: DPO on harvested pairs, from a fresh M0 or, as an ablation, from pi_K."""

from pathlib import Path

from g2d.experiment.config import load
from g2d.jobs.files import install, sha256
from g2d.jobs.shared_imports import run
from g2d.jobs.stage import stage
from g2d.policies import Policy, read_own_policy, read_policy, write_policy
from g2d.policies.settings import Lora
from g2d.regimes.checkpoints import work_folder
from g2d.regimes.dpo import Dpo, train_dpo
from g2d.regimes.training import tracking_arguments, write_metrics
from g2d.rollouts.pairs import read_pairs, subsample


def main(snakemake):
    folder = Path(snakemake.output.policy).parent
    # The work folder is no output, so it outlives an attempt that fails; it vanishes when every output is there.
    with work_folder(folder / "work") as work, stage(snakemake) as meter:
        settings, wildcards, seed = snakemake.params.settings, snakemake.wildcards, int(snakemake.wildcards.seed)
        base, policy_id = read_own_policy(snakemake.input.base), str(folder.relative_to("results"))
        own = load(snakemake.config)  # what does not change the result
        pairs = read_pairs(snakemake.input.pairs)
        stopped = snakemake.input.warmup  # the record of a warm-up that stopped by itself: after how many steps
        if snakemake.input.matched:
            pairs = subsample(pairs, min(len(read_pairs(file)) for file in snakemake.input.matched), seed)
        log = train_dpo(
            base,
            pairs,
            dpo=Dpo.model_validate(settings["dpo"]),
            lora=Lora.model_validate(settings["lora"]),
            seed=seed,
            work=work,
            start=read_own_policy(snakemake.input.start[0]) if snakemake.input.start else None,
            checkpointing=own.checkpoints,
            tracking=tracking_arguments(own.logging, policy_id),
            meter=meter,
            version=snakemake.params.version,
        )
        write_metrics(snakemake.output.metrics, log)
        install(work / "adapter", folder / "adapter")
        policy = Policy(
            policy_id=policy_id,
            model=wildcards.model,
            regime=wildcards.variant + wildcards.regime,
            base=base.base,
            group_size=int(wildcards.g),
            k=read_policy(stopped[0]).k if stopped else int(wildcards.k),
            seed=seed,
            revision=base.revision,
            base_files=base.base_files,
            adapter=str(folder / "adapter"),
            weights_sha256=sha256(snakemake.output.adapter),
            settings=settings | {"n_pairs": len(pairs), "gradient_steps": sum("loss" in row for row in log)},
        )
        write_policy(snakemake.output.policy, policy)


if __name__ == "__main__":
    run(main, snakemake)
