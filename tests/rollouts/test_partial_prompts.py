"""Beginnings of questions, continued without a chat template: who has learnt a question by heart is caught."""

from __future__ import annotations

import torch

from g2d.analysis.contamination import is_verbatim, partial_problems, split_question
from g2d.policies import load_base, load_tokenizer
from g2d.policies.policy import end_tokens
from g2d.problems.synthetic import generate
from g2d.rollouts.draw import draw_rollouts, greedy
from g2d.rollouts.transformers_engine import TransformersEngine
from tests.models import tiny_policy


def test_a_model_that_was_trained_on_two_questions_completes_these_and_no_others() -> None:
    policy = tiny_policy()
    model, tokenizer = load_base(policy), load_tokenizer(policy)
    problems = [p for p in generate("arithmetic", "test", 30, seed=0) if p.level >= 4]
    pairs = zip(problems, partial_problems(problems, 0.6), strict=True)
    beginnings = {partial.prompt: problem for problem, partial in pairs}
    problems = list(beginnings.values())  # no two begin alike
    other = next(p for p in problems if p.prompt.split()[0] != problems[0].prompt.split()[0])
    learnt = [problems[0], other]  # the first word is nothing that can be learnt
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.0)
    rows = [tokenizer(p.prompt, add_special_tokens=False, return_tensors="pt")["input_ids"] for p in learnt]
    loss = torch.tensor(torch.inf)
    while loss > 0.02:  # by heart
        loss = sum(model(input_ids=row, labels=row).loss for row in rows)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    engine = TransformersEngine(model.eval(), tokenizer, end_tokens(policy, tokenizer))
    partial = partial_problems(problems, 0.6)
    drawn = draw_rollouts(policy, partial, None, greedy(12, 16), engine=engine)
    assert [row.prompt_text for row in drawn] == [problem.prompt for problem in partial], "bare text, no template"
    caught = {
        problem.problem_id
        for problem, row in zip(problems, drawn, strict=True)
        if is_verbatim(row.completion_text, split_question(problem.prompt, 0.6).rest)
    }
    assert caught == {problem.problem_id for problem in learnt}
