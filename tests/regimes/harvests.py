"""Harvests of models with random weights and the chat templates of real ones, with their files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
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
        self.folder, self.template, self.hostile = folder, template, hostile
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
        write_problems(folder / "problems.jsonl", self.problems)
        assert read_pairs(folder / "pairs.jsonl") == self.pairs

    def of(self, rows: pd.DataFrame) -> list[Sampled]:
        return sorted(
            self.sampled[name, sample] for name, sample in zip(rows["problem_id"], rows["sample"], strict=True)
        )

    def of_pairs(self, *sides: str) -> list[Sampled]:
        pairs: list[Any] = self.pairs
        return sorted(self.sampled[pair["problem_id"], pair[f"{side}_sample"]] for pair in pairs for side in sides)
