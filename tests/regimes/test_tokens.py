"""Training uses exactly the sampled tokens of prompt and completion, with several chat templates.

Rendering the text again would differ. A finished answer of DeepSeek-R1-Distill loses its thinking, one of Qwen3 gets an
empty thinking block, and a truncated one gets an end of turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from peft import PeftModelForCausalLM

from g2d.jobs.files import write_jsonl
from g2d.policies import PolicyRecord, load_model, load_tokenizer
from g2d.policies.model_keys import Lora
from g2d.policies.record import end_tokens
from g2d.problems import Problem
from g2d.problems.prompts import Example, Prompt, conversation, conversation_ids, render
from g2d.regimes.common.regime import TrainingJob
from g2d.regimes.grpo.keys import Warmup
from g2d.regimes.grpo.train import train_grpo
from g2d.regimes.offline.dpo import Dpo, train_dpo
from g2d.regimes.offline.rft import Rft, chosen_completions, right_completions, train_rft
from g2d.regimes.on_policy.semi_online_dpo import SemiOnlineDpo, train_semi_online_dpo
from g2d.rewards.registry import reward_settings
from g2d.rollouts.continuous_batching import ContinuousBatch
from g2d.rollouts.engine import Decoding
from g2d.rollouts.pairs import build_pairs, read_pairs
from g2d.rollouts.rollout import IDS, read_rollouts, require_own_tokens, to_frame, write_rollouts
from tests.models import adapted, rollouts_of

Sampled = tuple[tuple[int, ...], tuple[int, ...]]  # tokens of a prompt and of a completion

# TRL's copies of templates: what begins a document, the tokenizer's end, what else ends a completion.
TEMPLATES = {
    "deepseek_r1_distill": ("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", []),
    "qwen3": (None, "<|im_end|>", ["<|endoftext|>"]),
    "qwen3_instruct_2507": (None, "<|im_end|>", ["<|endoftext|>"]),
    "qwen2_5": (None, "<|im_end|>", ["<|endoftext|>"]),
    "llama3_1": ("<|begin_of_text|>", "<|eot_id|>", ["<|eom_id|>", "<|end_of_text|>"]),
    "gemma": ("<bos>", "<eos>", ["<end_of_turn>"]),
}
CLOSES = {"gemma": "<end_of_turn>"}  # a turn; elsewhere the tokenizer's end does
MARKS = [
    "<think>",
    "</think>",
    "<|im_start|>",
    "<｜User｜>",
    "<｜Assistant｜>",
    "<|start_header_id|>",
    "<start_of_turn>",
]
WORDS = ["[UNK]", "[PAD]", "So", "wait", "1", "\\boxed{1}", "user", "assistant"]
PROBLEMS = [Problem(f"p{i}", f"So {'1 ' * i}", "1", None, None, "tests") for i in range(4)]
# Ends of turns of all templates, with which a text could end its own.
ENDS = " ".join(mark for begin, end, more in TEMPLATES.values() for mark in (begin, end, *more) if mark)
HOSTILE = [*PROBLEMS[:2], *(Problem(f"h{i}", f"So {'1 ' * i}{ENDS} 1", "1", None, None, "tests") for i in range(2))]
WORKED = Prompt(
    template="So {problem} wait",
    examples=[
        Example(problem="1 1", answer="\\boxed{1}"),
        Example(problem=f"So {ENDS}", answer=f"1 {ENDS} \\boxed{{1}}"),
    ],
)
DECODING = Decoding(8, 1.0, 1.0, 12, 64, seed=0)


def policy_of(template: str, folder: Path) -> PolicyRecord:
    """A model with random weights and few words, so that it draws completions of every kind."""
    from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    begin, end, more = TEMPLATES[template]
    raw = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    raw.add_tokens([AddedToken(mark, special=False) for mark in MARKS])
    raw.add_special_tokens([AddedToken(mark, special=True) for mark in (begin, end, *more) if mark])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw, bos_token=begin, eos_token=end, pad_token="[PAD]", unk_token="[UNK]"
    )
    tokenizer.chat_template = files("trl").joinpath(f"chat_templates/{template}.jinja").read_text()
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    shape = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), max_position_embeddings=256, **shape))
    model.generation_config.eos_token_id = tokenizer.convert_tokens_to_ids([end, *more])
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.save_pretrained(folder)
    return PolicyRecord("t/base", "t", "base", base=str(folder))


@contextmanager
def sampled() -> Iterator[list[Sampled]]:
    seen: list[Sampled] = []
    complete = ContinuousBatch.complete

    def watched(batch: ContinuousBatch, samples: Any) -> Any:
        completions = complete(batch, samples)
        seen.extend((tuple(batch.prompts[i]), tuple(tokens)) for (i, _), tokens in sorted(completions.items()))
        return completions

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ContinuousBatch, "complete", watched)
        yield seen


@contextmanager
def trained() -> Iterator[list[Sampled]]:
    """Record the tokens of passes with a gradient: tokens without a label, then tokens with one."""
    seen: list[Sampled] = []
    forward = PeftModelForCausalLM.forward

    def watched(model: Any, *args: Any, **kwargs: Any) -> Any:
        if torch.is_grad_enabled() and kwargs.get("labels") is not None:
            columns = (kwargs[name].tolist() for name in ("input_ids", "attention_mask", "labels"))
            for ids, mask, labels in zip(*columns, strict=True):
                row = [(token, label) for token, here, label in zip(ids, mask, labels, strict=True) if here]
                prompt = tuple(token for token, label in row if label == -100)
                completion = tuple(label for _, label in row if label != -100)
                assert tuple(token for token, _ in row) == prompt + completion
                seen.append((prompt, completion))
        return forward(model, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PeftModelForCausalLM, "forward", watched)
        yield seen


class Harvest:
    """Rollouts of a model with a template; every second one is right. `hostile`: special tokens in texts of prompts."""

    def __init__(self, template: str, folder: Path, *, hostile: bool = False) -> None:
        self.template, self.hostile = template, hostile
        self.problems, self.prompt = (HOSTILE, WORKED) if hostile else (PROBLEMS, Prompt())
        self.base = policy_of(template, folder / "base")
        self.tokenizer = load_tokenizer(self.base)
        with sampled() as seen:
            drawn = to_frame(rollouts_of(self.base, self.problems, self.prompt, DECODING, token_ids=True))
        right = drawn["sample"] % 2 == 0
        drawn = drawn.assign(reward=right.astype(float), verdict=right.map({True: "correct", False: "incorrect"}))
        write_rollouts(folder / "rollouts.parquet", drawn)
        self.rollouts = read_rollouts(folder / "rollouts.parquet")
        names = [(problem.problem_id, sample) for problem in self.problems for sample in range(8)]
        by_prompt = {prompt: [row for row in seen if row[0] == prompt] for prompt, _ in seen}
        assert len(by_prompt) == len(self.problems)
        self.sampled = dict(zip(names, (row for rows in by_prompt.values() for row in rows), strict=True))
        self.pairs = build_pairs(self.rollouts, self.problems, self.prompt, 0)
        write_jsonl(folder / "pairs.jsonl", self.pairs)
        assert read_pairs(folder / "pairs.jsonl") == self.pairs

    def of(self, rows: pd.DataFrame) -> list[Sampled]:
        return sorted(
            self.sampled[name, sample] for name, sample in zip(rows["problem_id"], rows["sample"], strict=True)
        )


@pytest.fixture(scope="module", params=[*TEMPLATES, *(f"{template} hostile" for template in TEMPLATES)])
def harvest(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Harvest:
    template, _, hostile = request.param.partition(" ")
    return Harvest(template, tmp_path_factory.mktemp(template), hostile=bool(hostile))


trained_on = pytest.mark.parametrize(
    "harvest", ["deepseek_r1_distill", "qwen3 hostile", "gemma hostile"], indirect=True, scope="module"
)


def test_the_rollouts_are_of_every_kind(harvest: Harvest) -> None:
    """Finished with and without thinking, cut off with and without thinking; end tokens are included."""
    rows, ends = harvest.rollouts, end_tokens(harvest.base, harvest.tokenizer)
    assert [tuple(map(tuple, row)) for row in zip(*(rows[name] for name in IDS), strict=True)] == [
        harvest.sampled[name, sample] for name, sample in zip(rows["problem_id"], rows["sample"], strict=True)
    ]
    thought = [harvest.tokenizer.convert_tokens_to_ids("</think>") in ids for ids in rows["completion_ids"]]
    assert set(zip(rows["finish_reason"], thought, strict=True)) >= {("stop", True), ("stop", False), ("length", False)}
    assert [ids[-1] in ends for ids in rows["completion_ids"]] == [reason == "stop" for reason in rows["finish_reason"]]
    assert {int(ids[-1]) for ids in rows["completion_ids"]} >= ends
    assert [len(ids) for ids in rows["completion_ids"]] == rows["token_count"].tolist()


def test_special_tokens_of_a_prompt_are_those_of_its_template(harvest: Harvest) -> None:
    tokenizer, unknown = harvest.tokenizer, harvest.tokenizer.unk_token_id
    special = {token for token, added in tokenizer.added_tokens_decoder.items() if added.special} - {unknown}
    harmless = harvest.prompt.model_copy(
        update={"examples": [Example(problem="1", answer="1") for _ in harvest.prompt.examples]}
    )

    def parsed(problem: Problem, prompt: Prompt) -> list[int]:
        shown = render(tokenizer, conversation(problem, prompt))
        return list(tokenizer(shown, add_special_tokens=False)["input_ids"])

    for problem in harvest.problems:
        ids = harvest.rollouts.query("problem_id == @problem.problem_id")["prompt_ids"].iloc[0].tolist()
        assert ids == conversation_ids(tokenizer, conversation(problem, harvest.prompt))
        wanted = parsed(replace(problem, prompt="1"), harmless)
        assert [token for token in ids if token in special] == [token for token in wanted if token in special]
        if harvest.hostile:
            texts = [
                problem.prompt,
                *(text for example in WORKED.examples for text in (example.problem, example.answer)),
            ]
            assert ids.count(unknown) >= len(ENDS.split()) * sum(text.count(ENDS) for text in texts)
            assert len(ids) > len(parsed(problem, Prompt()))
        else:
            assert ids == parsed(problem, harvest.prompt)


def test_greedy_tokens_are_the_likeliest_after_those_before_them(harvest: Harvest) -> None:
    greedy = Decoding(1, 0.0, 1.0, 12, 64, seed=0)
    (row,) = rollouts_of(harvest.base, harvest.problems[-1:], harvest.prompt, greedy, token_ids=True)
    assert row.prompt_ids is not None
    assert row.completion_ids is not None
    with torch.inference_mode():
        logits = load_model(harvest.base)(torch.tensor([[*row.prompt_ids, *row.completion_ids]])).logits[0]
    assert tuple(logits.argmax(-1)[len(row.prompt_ids) - 1 : -1].tolist()) == row.completion_ids


JOB: dict[str, Any] = {"lora": Lora(), "seed": 0}
ONE_PASS = {"epochs": 1, "per_device_batch_size": 4, "gradient_accumulation_steps": 1}


def of_pairs(harvest: Harvest, pairs: list[Any], *sides: str) -> list[Sampled]:
    return [harvest.sampled[pair["problem_id"], pair[f"{side}_sample"]] for pair in pairs for side in sides]


DPO = Dpo.model_validate(ONE_PASS)
FINISHED = "reward == 1 and finish_reason == 'stop'"
# Training, its data and settings, and the tokens that it trains on.
REGIMES: dict[str, tuple[Any, Callable[[Harvest], Any], Any, Callable[[Harvest], list[Sampled]]]] = {
    "dpo": (train_dpo, lambda h: h.pairs, DPO, lambda h: of_pairs(h, h.pairs, "chosen", "rejected")),
    "rft": (
        train_rft,
        lambda h: right_completions(h.rollouts, h.problems),
        Rft.model_validate({"regime": "rft", **ONE_PASS}),
        lambda h: h.of(h.rollouts.query(FINISHED).drop_duplicates(["problem_id", "completion_text"])),
    ),
    "rft_on_chosen": (
        train_rft,
        lambda h: chosen_completions(h.pairs),
        Rft.model_validate({"regime": "rft", "examples": "chosen", **ONE_PASS}),
        lambda h: of_pairs(h, h.pairs, "chosen"),
    ),
}


@trained_on
@pytest.mark.parametrize(("regime", "continues"), [*((regime, False) for regime in REGIMES), ("dpo", True)])
def test_an_offline_regime_trains_on_the_tokens_that_were_sampled(
    harvest: Harvest, regime: str, continues: bool, tmp_path: Path
) -> None:
    train, data, settings, expected = REGIMES[regime]
    start = adapted(harvest.base, tmp_path / "start", std=0.02) if continues else None
    job = TrainingJob(harvest.base, data(harvest), settings, work=tmp_path / "work", start=start, **JOB)
    with trained() as seen:
        train(job)
    assert sorted(seen) == sorted(expected(harvest))


@trained_on
def test_semi_online_dpo_and_its_grpo_term_train_on_the_tokens_that_were_sampled(
    harvest: Harvest, tmp_path: Path
) -> None:
    """All rollouts of the prompts with a pair; one that was cut off has no end of turn that pushes the gradient."""
    keys = {"regime": "semi_online_dpo", "steps": [2], "responses": 8, "prompts_per_update": 2, "grpo_weight": 0.1}
    settings = SemiOnlineDpo.model_validate(keys | {"max_completion_length": 12})
    asked = {"prompt": harvest.prompt, "reward": reward_settings({"reward": "random", "p": 0.5})} | JOB
    with sampled() as drawn, trained() as seen:
        log = train_semi_online_dpo(
            TrainingJob(harvest.base, harvest.problems, settings, k=2, work=tmp_path, **asked)
        ).log
    assert sum(row["pairable"] for row in log if "loss" in row) == 2
    assert sorted(seen) == sorted(drawn)
    ends = end_tokens(harvest.base, harvest.tokenizer)
    cut_off = [tokens for _, tokens in seen if len(tokens) == 12 and tokens[-1] not in ends]
    assert cut_off
    assert all(ends.isdisjoint(tokens) for tokens in cut_off)


@trained_on
def test_grpo_asks_with_the_tokens_that_everything_else_shows(harvest: Harvest, tmp_path: Path) -> None:
    shape = {"group_sizes": [4], "per_device_batch_size": 16, "gradient_accumulation_steps": 1}
    settings = Warmup.model_validate(shape | {"steps": [1], "max_completion_length": 4})
    job = TrainingJob(
        harvest.base, harvest.problems, settings, k=1, group_size=4, prompt=harvest.prompt, work=tmp_path, **JOB
    )
    with sampled() as seen:
        log = train_grpo(job).log
    assert {prompt for prompt, _ in seen} == {prompt for prompt, _ in harvest.sampled.values()}
    opening, closing = harvest.tokenizer.convert_tokens_to_ids(["<think>", "</think>"])
    unfinished = [
        closing not in tokens and (harvest.template == "deepseek_r1_distill" or opening in tokens) for _, tokens in seen
    ]
    assert log[0]["verdicts/unfinished_thinking"] == sum(unfinished) / len(unfinished)


def require_parsed_prompts(harvest: Harvest) -> None:
    if harvest.hostile:
        pytest.skip("the text of a prompt does not say which of its tokens are special")


def test_tokens_of_another_tokenizer_are_refused(harvest: Harvest, tmp_path: Path) -> None:
    other = policy_of("gemma" if "gemma" not in harvest.base.base else "qwen3", tmp_path)
    with pytest.raises(ValueError, match="not the tokenizer that the rollouts were drawn with"):
        require_own_tokens(harvest.rollouts["tokenizer_sha256"], other, "the rollouts")
    with pytest.raises(ValueError, match="not the tokenizer that the pairs were drawn with"):
        require_own_tokens([pair["tokenizer_sha256"] for pair in harvest.pairs], other, "the pairs")
