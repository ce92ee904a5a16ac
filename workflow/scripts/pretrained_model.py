"""Find or download a base model: copy its small files and link its weights."""

from pathlib import Path

from pydantic import TypeAdapter

from g2d.jobs.stage import stage
from g2d.policies import write_policy
from g2d.policies.model_keys import ModelSource
from g2d.policies.pretrained import placed, resolve_base


def main(snakemake):
    with stage(snakemake):
        source = TypeAdapter(ModelSource).validate_python(snakemake.params.source)
        base = resolve_base(snakemake.wildcards.model, source)
        write_policy(snakemake.output.policy, placed(base, Path(snakemake.output.model)))


if __name__ == "__main__":
    main(snakemake)
