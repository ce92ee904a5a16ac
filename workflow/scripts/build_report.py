"""Write tables, figures, pairs and provenance as one page."""

from pathlib import Path

from g2d.checks.load import load
from g2d.grid.grid import Grid
from g2d.jobs.files import read_json, write_text
from g2d.jobs.stage import stage
from g2d.problems import read_problems
from g2d.report.browsers import ROLLOUT_COLUMNS, browse_answers, browse_pairs
from g2d.report.page import build
from g2d.rollouts.pairs import read_pairs
from g2d.rollouts.rollout import read_rollouts
from g2d.tables.dated_plan import plan_words, read_plan
from g2d.tables.inputs import Inputs
from g2d.tables.reads import SHOWN_ANSWERS, SHOWN_PAIRS, SHOWN_ROLLOUTS, shown_harvests


def main(snakemake):
    with stage(snakemake):
        given = snakemake.input
        params = snakemake.params
        out = Path(snakemake.output[0])
        grid = Grid(load(snakemake.config))
        pairs = SHOWN_PAIRS.by_key(grid, given.get("pairs", []))
        rollouts = SHOWN_ROLLOUTS.by_key(grid, given.get("rollouts", []))
        answers = SHOWN_ANSWERS.by_key(grid, given.get("answers", []))
        questions = dict(zip(grid.config.benchmarks, given.questions, strict=True))
        prompts = {}
        for model, path in zip(grid.config.models, given.problems, strict=True):
            prompts[model] = {problem.problem_id: problem for problem in read_problems(path)}
        page = build(
            tables=dict(zip(params.tables, given.tables, strict=True)),
            figures=dict(zip(params.figures, given.figures, strict=True)),
            captions=params.captions,
            grid=grid,
            series=browse_pairs(
                shown_harvests(grid),
                pairs=lambda harvest: read_pairs(pairs[harvest]),
                rollouts=lambda harvest: read_rollouts(rollouts[harvest], ROLLOUT_COLUMNS),
                problems=prompts,
            ),
            answered=browse_answers(
                grid,
                shown=Inputs(grid, given=given).shown,
                answers=lambda policy, benchmark: read_rollouts(answers[policy, benchmark], ROLLOUT_COLUMNS),
                problems=lambda benchmark: read_problems(questions[benchmark]),
            ),
            provenance=read_json(given.provenance),
            folder=out.parent,
            plan=plan_words(read_plan()),
        )
        write_text(out, page)


if __name__ == "__main__":
    main(snakemake)
