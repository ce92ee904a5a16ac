"""Harvests of models with random weights and the chat templates of real ones, with their files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from itertools import chain
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from peft import PeftModelForCausalLM

from g2d.jobs.files import write_jsonl
from g2d.policies import PolicyRecord, load_tokenizer
from g2d.problems import Problem, write_problems
from g2d.problems.prompts import Example, Prompt
from g2d.rollouts.continuous_batching import ContinuousBatch
from g2d.rollouts.engine import Decoding
from g2d.rollouts.pairs import build_pairs, read_pairs
from g2d.rollouts.rollout import read_rollouts, to_frame, write_rollouts
from tests.models import rollouts_of

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


def special_marks(template: str) -> list[str]:
    begin, end, more = TEMPLATES[template]
    return [*filter(None, (begin, end, *more))]


def problem(name: str, prompt: str) -> Problem:
    return Problem(name, prompt, "1", None, None, "tests")


# Ends of turns of all templates, with which a text could end its own.
ENDS = " ".join(chain.from_iterable(map(special_marks, TEMPLATES)))
PROBLEMS = [problem("p0", "So "), problem("p1", "So 1 "), problem("p2", "So 1 1 "), problem("p3", "So 1 1 1 ")]
HOSTILE = [*PROBLEMS[:2], problem("h0", f"So {ENDS} 1"), problem("h1", f"So 1 {ENDS} 1")]
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
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    begin, end, more = TEMPLATES[template]
    raw = Tokenizer(models.WordLevel(dict(zip(WORDS, range(len(WORDS)), strict=True)), unk_token="[UNK]"))
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    raw.add_tokens(MARKS)
    raw.add_special_tokens(special_marks(template))
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
        for (i, _), tokens in sorted(completions.items()):
            seen.append((tuple(batch.prompts[i]), tuple(tokens)))
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
            for ids, mask, labels in zip(kwargs["input_ids"], kwargs["attention_mask"], kwargs["labels"], strict=True):
                tokens = ids[mask.bool()]
                shown = labels[mask.bool()]
                prompt = tokens[shown == -100]
                completion = shown[shown != -100]
                assert torch.equal(tokens, torch.cat([prompt, completion]))
                seen.append((tuple(prompt.tolist()), tuple(completion.tolist())))
        return forward(model, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PeftModelForCausalLM, "forward", watched)
        yield seen


class Harvest:
    """Rollouts of a model with a template; every second one is right. `hostile`: special tokens in texts of prompts."""

    def __init__(self, template: str, folder: Path, *, hostile: bool = False) -> None:
        self.folder = folder
        self.template = template
        self.hostile = hostile
        self.problems = HOSTILE if hostile else PROBLEMS
        self.prompt = WORKED if hostile else Prompt()
        self.base = policy_of(template, folder / "base")
        self.tokenizer = load_tokenizer(self.base)
        with sampled() as seen:
            drawn = to_frame(rollouts_of(self.base, self.problems, self.prompt, DECODING, token_ids=True))
        right = drawn["sample"] % 2 == 0
        drawn = drawn.assign(reward=right.astype(float), verdict=right.map({True: "correct", False: "incorrect"}))
        write_rollouts(folder / "rollouts.parquet", drawn)
        self.rollouts = read_rollouts(folder / "rollouts.parquet")
        by_prompt: dict[tuple[int, ...], list[Sampled]] = {}
        for row in seen:
            by_prompt.setdefault(row[0], []).append(row)
        self.sampled = {}
        for problem, rows in zip(self.problems, by_prompt.values(), strict=True):
            assert len(rows) == 8
            for sample, row in enumerate(rows):
                self.sampled[problem.problem_id, sample] = row
        self.pairs = build_pairs(self.rollouts, self.problems, self.prompt, 0)
        write_jsonl(folder / "pairs.jsonl", self.pairs)
        write_problems(folder / "problems.jsonl", self.problems)
        assert read_pairs(folder / "pairs.jsonl") == self.pairs

    def of(self, rows: pd.DataFrame) -> list[Sampled]:
        keys = zip(rows["problem_id"], rows["sample"], strict=True)
        return sorted(self.sampled[key] for key in keys)

    def of_pairs(self, *sides: str) -> list[Sampled]:
        pairs = pd.DataFrame(self.pairs)
        tokens = []
        for side in sides:
            tokens += self.of(pairs.assign(sample=pairs[f"{side}_sample"]))
        return sorted(tokens)
