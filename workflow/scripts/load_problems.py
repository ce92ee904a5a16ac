"""Convert a set of problems to the common format and write its manifest."""

from g2d.analysis.calibration import require_levels
from g2d.checks.load import load
from g2d.jobs.files import write_json
from g2d.jobs.stage import stage
from g2d.problems import write_problems
from g2d.problems.audit import manifest
from g2d.problems.problem_keys import problem_files
from g2d.problems.sources import load_problems
from g2d.verifier import verify_batch


def main(snakemake):
    name = snakemake.wildcards.set
    config = load(snakemake.config)
    source = config.problem_sources[name]
    with stage(snakemake, reads=problem_files(source)):
        problems = load_problems(name, source)
        if name == "pool":  # fail before the calibration uses a GPU
            levels = {problem.level for problem in problems}
            for model in config.models:
                require_levels(config.for_model(model).calibration, levels)
        write_problems(snakemake.output.problems, problems)
        verify = None  # a verifier in Python may not accept an answer that is only put into a box
        if snakemake.config.get("verifier") is None:
            verify = verify_batch
        write_json(snakemake.output.manifest, manifest(name, source, problems, verify))


if __name__ == "__main__":
    main(snakemake)
