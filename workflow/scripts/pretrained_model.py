"""Find or download a base model and record its folder."""

from pydantic import TypeAdapter

from g2d.jobs.stage import stage
from g2d.policies import write_policy
from g2d.policies.model_keys import ModelSource
from g2d.policies.pretrained import resolve_base


def main(snakemake):
    with stage(snakemake):
        source = TypeAdapter(ModelSource).validate_python(snakemake.params.source)
        write_policy(snakemake.output.policy, resolve_base(snakemake.wildcards.model, source))


if __name__ == "__main__":
    main(snakemake)
