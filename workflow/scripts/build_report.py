"""Write tables, figures, pairs and provenance as one page."""

from pathlib import Path

from g2d.experiment.config import load
from g2d.experiment.grid import harvests, harvests_of_controls
from g2d.jobs.files import read_json, write_text
from g2d.jobs.stage import stage
from g2d.problems import read_problems
from g2d.report.browsers import ROLLOUT_COLUMNS, browse_answers, browse_pairs
from g2d.report.page import build
from g2d.rollouts.pairs import read_pairs
from g2d.rollouts.rollout import read_rollouts
from g2d.tables.dated_plan import plan_words, read_plan


def main(snakemake):
    with stage(snakemake):
        given, params, out = snakemake.input, snakemake.params, Path(snakemake.output[0])
        config = load(snakemake.config)
        series = browse_pairs(
            [*harvests(config), *harvests_of_controls(config)],
            pairs=lambda key: read_pairs(f"results/{key.folder}/pairs.jsonl"),
            rollouts=lambda key: read_rollouts(f"results/{key.folder}/rollouts.parquet", ROLLOUT_COLUMNS),
            problems={
                model: {problem.problem_id: problem for problem in read_problems(path)}
                for model, path in zip(config.models, given.problems, strict=True)
            },
        )
        answered = browse_answers(
            config,
            answers=lambda key, name: read_rollouts(f"results/{key.folder}/eval/{name}.parquet", ROLLOUT_COLUMNS),
            problems=lambda name: read_problems(f"results/problems/{name}.jsonl"),
        )
        page = build(
            tables=dict(zip(params.tables, given.tables, strict=True)),
            figures=dict(zip(params.figures, given.figures, strict=True)),
            captions=params.captions,
            config=config,
            series=series,
            answered=answered,
            provenance=read_json(given.provenance),
            folder=out.parent,
            plan=plan_words(read_plan()),
        )
        write_text(out, page)


if __name__ == "__main__":
    main(snakemake)
