"""Everyday requests: they are distinct, splits share none, and models get their vocabulary and corpus."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import get_args

import pytest

from g2d.policies.scratch import build_tokenizer, draw_documents
from g2d.problems.corpus import reply_document
from g2d.problems.leakage import find_leaks
from g2d.problems.manifest import manifest
from g2d.problems.replies import POLITE, RUDE, generate
from g2d.problems.settings import HELD_OUT, OPEN_ENDED, LocalProblems, SyntheticProblems
from g2d.problems.sources import ProblemError, load_problems
from g2d.problems.synthetic import Split
from g2d.verifier import verify_batch


def test_splits_share_no_request_and_a_seed_fixes_the_order() -> None:
    drawn = {split: generate(split, 60, seed=0) for split in get_args(Split)}
    for split, problems in drawn.items():
        assert len({problem.prompt for problem in problems}) == 60
        assert {problem.kind for problem in problems} == {"open_ended"}
        others = [problem for name, of_split in drawn.items() if name != split for problem in of_split]
        assert find_leaks(problems, others) == {}
    assert generate("train", 60, seed=0) == drawn["train"]
    assert generate("train", 60, seed=1) != drawn["train"]


def test_too_many_requests_are_refused() -> None:
    source = SyntheticProblems(source="synthetic", family="replies", split="test", n=5000)
    with pytest.raises(ProblemError, match=r"open_ended.held_out.n: replies: 5000 different test requests"):
        load_problems(HELD_OUT, source)


def test_a_file_of_prompts_needs_no_column_of_answers(tmp_path: Path) -> None:
    file = tmp_path / "chats.jsonl"
    file.write_text(json.dumps({"problem": "How are you?"}) + "\n")
    source = LocalProblems(source="local", path=str(file))
    (problem,) = load_problems(OPEN_ENDED, source)
    assert (problem.problem_id, problem.prompt, problem.answer) == ("open-ended-00000", "How are you?", None)
    assert manifest(OPEN_ENDED, source, [problem], verify_batch)["reference_failures"] == []
    with pytest.raises(ProblemError, match="no column 'answer'"):
        load_problems("pool", source)


def test_a_completion_of_a_problem_without_an_answer_is_not_verified() -> None:
    judgements = verify_batch(
        [(None, r"\boxed{1}"), ("1", r"\boxed{1}"), (None, "?")], finish_reasons=[None, None, "length"]
    )
    assert [judgement.verdict for judgement in judgements] == ["no_reference", "correct", "no_reference"]


def test_a_model_that_learns_replies_knows_their_words() -> None:
    rng = random.Random(0)
    texts = [text for _ in range(300) for text in reply_document(rng)]
    texts += [problem.prompt for problem in generate("test", 60, seed=0)]
    knows, knows_not = build_tokenizer(replies=True), build_tokenizer()
    for text in texts:
        ids = knows(text)["input_ids"]
        assert knows.unk_token_id not in ids
        assert knows.decode(ids) == text
    assert any(knows_not.unk_token_id in knows_not(text)["input_ids"] for text in texts)


def test_its_corpus_has_so_many_of_them() -> None:
    tokenizer = build_tokenizer(replies=True)
    mannered = {tokenizer(f" {text}")["input_ids"][0] for text in (*POLITE, *RUDE)}
    documents = draw_documents(tokenizer, random.Random(0), 2000, replies=0.25)
    share = sum(bool(mannered & set(completion)) for _, completion in documents) / 2000
    assert share == pytest.approx(0.25 * 0.8, abs=0.03)  # one reply in five is neither polite nor rude
