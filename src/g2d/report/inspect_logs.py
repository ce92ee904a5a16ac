"""`g2d export`: finished evaluations as logs of inspect_ai, one per policy, benchmark and seed.

Equal results give equal logs: identifiers are digests, and times come from the evaluation.
"""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

import g2d
from g2d.analysis.statistics import standard_error
from g2d.experiment.keys import PolicyKey
from g2d.graph.parts import files_of
from g2d.jobs.attempts import Attempt
from g2d.jobs.files import atomic, sha256
from g2d.plain import say
from g2d.problems import Problem, read_problems
from g2d.problems.prompts import Prompt, conversation
from g2d.rollouts.draw import evaluation_decoding
from g2d.rollouts.rollout import read_rollouts
from g2d.tables.results import Results

SCORER = "verifier"
# Other verdicts are I, incorrect; inspect counts only C.
VALUES = {"correct": "C", "no_boxed": "N", "truncated": "N"}
REASONS = {
    "correct": "the answer equals the reference",
    "incorrect": "the answer differs from the reference",
    "no_boxed": r"no terminated \boxed{}",
    "truncated": r"no terminated \boxed{} within the token budget",
    "parse_error": "the answer is not mathematics that Math-Verify reads",
    "timeout": "verifying the answer exceeded its deadline",
    "limit": "the answer exceeded a limit of the verifier",
}


def register(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "export",
        help="write finished evaluations for other tools",
        description="Write the finished evaluations of a results folder for other tools. inspect: a log for every "
        "policy, benchmark and seed, which `inspect view` opens (docs/standard.md).",
    )
    parser.add_argument("results", nargs="?", default="results", help="results folder (default: results)")
    parser.add_argument("--to", required=True, choices=["inspect"], help="the format")
    parser.add_argument("--out", default="logs", metavar="FOLDER", help="where to; files there are replaced")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Write `{folder of the policy}/{benchmark}.eval` for each finished evaluation."""
    try:
        from inspect_ai.log import EvalLog, write_eval_log
    except ImportError:
        raise RuntimeError("inspect_ai is not installed: pip install 'g2d[inspect]' (docs/standard.md)") from None
    results = g2d.open(arguments.results)
    files = files_of(results.config, "answers")
    finished = [
        (key, name) for (key, name), file in files.items() if key in results.records and results.path(file).exists()
    ]
    if not finished:
        raise FileNotFoundError(f"{arguments.results}: no evaluation has finished there: run the workflow first")
    problems_of = cache(lambda name: read_problems(results.folder / f"problems/{name}.jsonl"))
    jobs = {attempt.cost.job: attempt for attempt in results.attempts if attempt.status == "ok"}
    for key, name in finished:
        target = Path(arguments.out, key.folder, f"{name}.eval")
        attempt = jobs.get(f"results/{key.folder}/eval/{name}.cost")
        log = EvalLog.model_validate(log_of(results, results.finished[key], name, problems_of(name), attempt))
        with atomic(target) as draft:
            write_eval_log(log, draft, format="eval")
    out = arguments.out
    say(f"{len(finished)} of {len(files)} evaluations in {out}: inspect view --log-dir {out}")
    return 0


def log_of(
    results: Results, key: PolicyKey, benchmark: str, problems: Sequence[Problem], attempt: Attempt | None
) -> dict[str, Any]:
    """Return an `inspect_ai.log.EvalLog`; without an `attempt`, its time is the file's."""
    file = results.folder / key.folder / f"eval/{benchmark}.parquet"
    answers = read_rollouts(file)
    by_id = {problem.problem_id: problem for problem in problems}
    if strangers := [name for name in answers["problem_id"] if name not in by_id]:
        raise ValueError(
            f"{file}: answers {strangers[0]!r}, which is not in problems/{benchmark}.jsonl: run the workflow again, "
            "which evaluates anew what has other problems"
        )
    config, policy = results.config.for_model(key.model), results.records[key]
    decoding = evaluation_decoding(config.evaluation.answers)
    generation = {
        "temperature": decoding.temperature,
        "top_p": decoding.top_p,
        "max_tokens": decoding.max_completion_length,
        **({"seed": decoding.seed} if decoding.temperature else {}),
    }
    times = (attempt.started, attempt.updated) if attempt else (file.stat().st_mtime,) * 2
    began, ended = (datetime.fromtimestamp(int(time), UTC).isoformat() for time in times)
    identity = _identity(key.folder, benchmark, sha256(file))
    return {
        "status": "success",
        "eval": {
            **dict.fromkeys(("eval_id", "run_id", "task_id"), identity),
            "created": began,
            "task": benchmark,
            "task_attribs": {"title": config.title, "demonstration": config.demonstration},
            "tags": [key.label],
            "dataset": {
                "name": benchmark,
                "location": problems[0].source,
                "samples": len(by_id),
                "sample_ids": list(by_id),
                "shuffled": False,
            },
            "model": key.folder,
            "model_generate_config": generation,
            "model_args": {"base": policy.public_base, "revision": policy.revision, "sha256": policy.weights_sha256},
            "config": {"epochs": decoding.samples_per_prompt, "epochs_reducer": ["mean"]},
            "metadata": {"policy": key.label, "K": key.shown_k, "group_size": key.group_size, "seed": key.seed},
        },
        "plan": {"steps": [{"solver": "generate"}], "config": generation},
        "results": _results(answers),
        "stats": {
            "started_at": began,
            "completed_at": ended,
            "model_usage": {key.folder: _usage(int(answers["token_count"].sum()))},
        },
        "samples": [
            _sample(row, by_id[row["problem_id"]], config.prompt, key.folder, identity)
            for row in answers.to_dict("records")
        ],
    }


def _results(answers: pd.DataFrame) -> dict[str, Any]:
    by_problem = answers.groupby("problem_id", sort=True)["reward"].mean()
    values = {"accuracy": float(by_problem.mean()), "stderr": standard_error(by_problem.to_numpy())}
    metrics = {name: {"name": name, "value": value} for name, value in values.items() if value is not None}
    score: dict[str, Any] = {"name": SCORER, "scorer": SCORER, "reducer": "mean", "metrics": metrics}
    score |= {"scored_samples": len(by_problem), "unscored_samples": 0}
    return {"total_samples": len(answers), "completed_samples": len(answers), "scores": [score]}


def _sample(row: Mapping[Any, Any], problem: Problem, prompt: Prompt, model: str, log: str) -> dict[str, Any]:
    place = f"{row['problem_id']}/{row['sample']}"
    messages = [{**message, "id": f"{place}/{n}"} for n, message in enumerate(conversation(problem, prompt))]
    reply = {"role": "assistant", "content": row["completion_text"], "model": model, "id": f"{place}/{len(messages)}"}
    usage = _usage(int(row["token_count"]))
    return {
        "id": row["problem_id"],
        "epoch": int(row["sample"]) + 1,
        "uuid": _identity(log, place),
        "input": messages,
        "target": row["reference_answer"],
        "messages": [*messages, reply],
        "output": {
            "model": model,
            "choices": [
                {"message": reply, "stop_reason": "max_tokens" if row["finish_reason"] == "length" else "stop"}
            ],
            "usage": usage,
        },
        "scores": {
            SCORER: {
                "value": VALUES.get(row["verdict"], "I"),
                "answer": row["extracted_answer"],
                "explanation": f"{row['verdict']}: {REASONS[row['verdict']]}",
                "metadata": {"verdict": row["verdict"], "disputed": bool(row["disputed"])},
            }
        },
        "metadata": {"level": problem.level, "subject": problem.subject, "prompt_text": row["prompt_text"]},
        "model_usage": {model: usage},
    }


def _usage(tokens: int) -> dict[str, int]:
    return {"output_tokens": tokens, "total_tokens": tokens}


def _identity(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:22]
