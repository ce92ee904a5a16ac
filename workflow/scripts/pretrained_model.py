"""Find or download a base model: copy its small files and link its weights."""

from pathlib import Path

from pydantic import TypeAdapter

from g2d.checks.load import load
from g2d.jobs.stage import stage
from g2d.policies import write_policy
from g2d.policies.lora_targets import require_targets
from g2d.policies.model_keys import CONFIG, ModelSource
from g2d.policies.pretrained import placed, resolve_base


def main(snakemake):
    with stage(snakemake):
        source = TypeAdapter(ModelSource).validate_python(snakemake.params.source)
        name = snakemake.wildcards.model
        base = resolve_base(name, source)
        require_targets(Path(base.base, CONFIG), load(snakemake.config).for_model(name).lora)
        write_policy(snakemake.output.policy, placed(base, Path(snakemake.output.model)))


if __name__ == "__main__":
    main(snakemake)
