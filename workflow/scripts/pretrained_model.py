"""Find or download a base model: copy its small files and link its weights."""

from pathlib import Path

from g2d.checks.load import load
from g2d.jobs.stage import stage
from g2d.policies import write_policy
from g2d.policies.lora_targets import require_targets
from g2d.policies.model_keys import CONFIG, model_files
from g2d.policies.pretrained import placed, resolve_base


def main(snakemake):
    name = snakemake.wildcards.model
    config = load(snakemake.config)
    source = config.models[name]
    with stage(snakemake, reads=model_files(source)):
        base = resolve_base(name, source)
        require_targets(Path(base.base, CONFIG), config.for_model(name).lora)
        write_policy(snakemake.output.policy, placed(base, Path(snakemake.output.model)))


if __name__ == "__main__":
    main(snakemake)
