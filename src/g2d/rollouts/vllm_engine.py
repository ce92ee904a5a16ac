"""Completions from vLLM in this process: one call per set of prompts, continuous batching, cached prefixes.

Prompts are rendered and tokenized, and completions decoded, by the tokenizer that every engine uses; vLLM sees tokens
only. Each prompt has a seed from (seed, problem), so a rollout does not depend on other prompts: on a CPU in float32
bit for bit (a test says so), in bfloat16 on a GPU but for near-ties, since logits depend a little on the batch.

Adapters are merged into a copy of the weights before the start (`merge`) or applied at every step (`lora`), where they
can be exchanged in a running engine (docs/performance.md). `g2d.rollouts.engine_host` keeps an engine for later jobs.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

from g2d.jobs.run_process import release
from g2d.policies.policy import Policy, context_limit, end_tokens, load_model, load_tokenizer, require_own_weights
from g2d.problems.prompts import Messages, document, render
from g2d.rollouts.budgets import prefixes
from g2d.rollouts.cpu_cache import cpu_cache_bytes
from g2d.rollouts.engine import Completion, Decoding, Request, require_room
from g2d.rollouts.free_memory import require_free
from g2d.rollouts.rollout import FinishReason
from g2d.rollouts.sampling import request_seed
from g2d.rollouts.settings import EngineSettings
from g2d.rollouts.vllm_adapters import adapter_rank_of, require_own_base, supported_rank
from g2d.rollouts.vllm_environment import on_gpu, prepare_environment

CONTEXT_STEP = 256  # tokens: the context is rounded up, since a new start costs more
SEQUENCES = 256  # that vLLM prepares for by default
CPU_BATCH = 8192  # tokens of prompts read at once


class VllmEngine:
    """Generates with a vLLM engine in this process.

    It starts with the first `generate`, when the length of the prompts is known, and again where a later call needs a
    longer context.

    Args:
        policy: M0 with or without an adapter.
        settings: of the engine.
        adapter_rank: expect adapters of this rank from `use_adapter`; None for the policy's own adapter only.
        memory_utilization: share of the GPU's memory, if not the one in `settings`.
        most_sequences: completions at once, if fewer than vLLM would prepare memory and CUDA graphs for; further ones
            wait.

    Raises:
        ValueError: the adapter cannot be used as asked; the message names it and what to change.
    """

    name = "vllm"
    _running: ClassVar[VllmEngine | None] = None  # vLLM's distributed state is global to the process

    def __init__(
        self,
        policy: Policy,
        settings: EngineSettings | None = None,
        *,
        adapter_rank: int | None = None,
        memory_utilization: float | None = None,
        most_sequences: int | None = None,
    ) -> None:
        self.policy = policy
        self.settings = settings or EngineSettings(name="vllm")
        self.memory_utilization = memory_utilization or self.settings.gpu_memory_utilization
        self.most_sequences = most_sequences
        self.tokenizer = load_tokenizer(policy)
        self.end_ids = end_tokens(policy, self.tokenizer)
        self._llm: Any = None
        self._context = 0  # tokens of prompt and completion together that the running engine can hold
        self._merged: TemporaryDirectory[str] | None = None
        self._adapter: Any = None
        self._adapters_seen = 0
        if policy.adapter is not None:
            adapter_rank_of(policy.adapter)  # is there one
            require_own_weights(policy)
            require_own_base(policy.adapter, policy.base)
        rank = adapter_rank
        if policy.adapter is not None and not self.merges:
            rank = max(rank or 0, adapter_rank_of(policy.adapter))
        self.max_lora_rank = None if rank is None else supported_rank(rank, policy.adapter or policy.base)
        if policy.adapter is not None and not self.merges:
            self.use_adapter(policy.adapter)

    @property
    def merges(self) -> bool:
        """Whether the policy's own adapter is merged; `auto` merges on a CPU, where that is three times faster than
        applying it, and applies it on a GPU, where a merged float32 copy of an 8B model would take 32 GB."""
        return self.settings.adapters == "merge" or (self.settings.adapters == "auto" and not on_gpu())

    def render(self, messages: Messages) -> str:
        """The conversation in the model's chat template, ready for the assistant's turn."""
        return render(self.tokenizer, messages)

    def document(self, text: str) -> str:
        """A text as the beginning of a document."""
        return document(self.tokenizer, text)

    def generate(self, requests: Sequence[Request], decoding: Decoding) -> list[list[Completion]]:
        """Complete every request in one call; `decoding.batch_size` is left to vLLM.

        Raises:
            ValueError: a prompt and its completion do not fit the model's context; the message names the problem.
        """
        if not requests:
            return []
        prompts = self._tokens([request.prompt_text for request in requests])
        seeds = [request_seed(decoding.seed, request.problem_id) for request in requests]
        names = [f"problem {request.problem_id}" for request in requests]
        outputs = self.complete(prompts, seeds, decoding, names=names)
        return [
            [self._completion(tuple(prompt), sample, decoding) for sample in output.outputs]
            for prompt, output in zip(prompts, outputs, strict=True)
        ]

    def complete(
        self,
        prompts: Sequence[Sequence[int]],
        seeds: Sequence[int],
        decoding: Decoding,
        *,
        names: Sequence[str] | None = None,
        log_probabilities: bool = False,
    ) -> list[Any]:
        """vLLM's own outputs for tokenized prompts, in order. Sample j of a prompt is drawn with its seed + j.

        Args:
            names: of the prompts in messages.
            log_probabilities: return those of the tokens drawn, with the temperature.
        """
        self._reach(prompts, decoding.max_completion_length, names)
        from vllm import SamplingParams

        parameters = [
            SamplingParams(
                n=decoding.samples_per_prompt,
                temperature=decoding.temperature,
                top_p=decoding.top_p,
                top_k=0,
                seed=seed if decoding.temperature > 0 else None,
                max_tokens=decoding.max_completion_length,
                stop_token_ids=sorted(self.end_ids),
                logprobs=0 if log_probabilities else None,
                detokenize=False,
            )
            for seed in seeds
        ]
        tokens = [{"prompt_token_ids": list(prompt)} for prompt in prompts]
        return self._llm.generate(tokens, parameters, lora_request=self._adapter, use_tqdm=False)

    def draw(
        self, prompts: Sequence[Sequence[int]], seeds: Sequence[int], decoding: Decoding
    ) -> tuple[list[list[int]], list[list[float]]]:
        """A completion of every tokenized prompt, for a trainer: its tokens, the end of the turn included, and the
        log-probability of each under the distribution that it was drawn from."""
        outputs = self.complete(prompts, seeds, decoding, log_probabilities=True)
        drawn = [output.outputs[0] for output in outputs]
        log_probabilities = [
            [entry[token].logprob for token, entry in zip(sample.token_ids, sample.logprobs, strict=True)]
            for sample in drawn
        ]
        return [list(sample.token_ids) for sample in drawn], log_probabilities

    def use_adapter(self, folder: str | Path) -> None:
        """Generate with the adapter in a folder from now on; the folder is read again.

        Raises:
            ValueError: the engine was not made for adapters, or for smaller ones.
        """
        if self.max_lora_rank is None:
            raise ValueError(f"{folder}: this engine holds merged weights; set engine.adapters: lora to exchange them")
        if (rank := adapter_rank_of(folder)) > self.max_lora_rank:
            raise ValueError(f"{folder}: its rank {rank} exceeds the {self.max_lora_rank} this engine was made for")
        prepare_environment()
        from vllm.lora.request import LoRARequest

        # A new number for every version: vLLM caches weights and prefixes by it.
        self._adapters_seen += 1
        self._adapter = LoRARequest(f"adapter-{self._adapters_seen}", self._adapters_seen, str(Path(folder).resolve()))
        if self._llm is not None:
            self._llm.llm_engine.add_lora(self._adapter)

    def start_for(self, prompt_texts: Iterable[str], max_completion_length: int) -> None:
        """Start the engine now, large enough for every one of these prompts and its completion.

        Raises:
            ValueError: one of them does not fit the model's context.
        """
        self._reach(self._tokens(list(prompt_texts)), max_completion_length, None)

    def start(self, context: int) -> None:
        """Start the engine for prompts and completions of together `context` tokens.

        A process has one engine: a running one is closed first. vLLM also seeds the random numbers of the process, so a
        caller with random state of its own starts the engine first.
        """
        if VllmEngine._running is not None:
            VllmEngine._running.close()
        prepare_environment()
        from vllm import LLM

        gpu, sequences = on_gpu(), min(SEQUENCES, self.most_sequences or SEQUENCES)
        if gpu:
            release()
            if self.settings.tensor_parallel_size == 1:  # the check initialises CUDA, and vLLM forks for several GPUs
                require_free(self.memory_utilization)
        arguments: dict[str, Any] = {
            "model": self._weights(),
            "skip_tokenizer_init": True,
            "load_format": "safetensors",  # pickled weights can run code on loading
            # Merged weights stay in float32: in bfloat16 most of a small adapter would be rounded away.
            "dtype": "bfloat16" if gpu and self._merged is None else "float32",
            "max_model_len": context,
            "enable_prefix_caching": True,
            "generation_config": "vllm",  # every value of the decoding is given with the request
            "logprobs_mode": "processed_logprobs",
            "seed": 0,
            "disable_log_stats": True,
        }
        if gpu:
            arguments["gpu_memory_utilization"] = self.memory_utilization
            arguments["tensor_parallel_size"] = self.settings.tensor_parallel_size
        else:
            # vLLM's CPU build cannot rewind a random generator, which it does for prompts that are read in parts.
            arguments |= {"enable_chunked_prefill": False, "max_num_batched_tokens": max(context, CPU_BATCH)}
            arguments["enforce_eager"] = True  # compiling takes longer than a small model's whole harvest
            arguments["kv_cache_memory_bytes"] = cpu_cache_bytes(self.policy.base, sequences, context)
        if sequences < SEQUENCES:
            arguments["max_num_seqs"] = sequences
        if self.max_lora_rank is not None:
            arguments |= {"enable_lora": True, "max_lora_rank": self.max_lora_rank, "max_loras": 1}
        self._llm = LLM(**arguments)
        self._context = context
        VllmEngine._running = self

    def forget_prompts(self) -> None:
        """Empty the cache of prefixes, as it is after a start."""
        if self._llm is not None:
            self._llm.reset_prefix_cache()

    def close(self) -> None:
        """Free the memory of the engine; it starts again when it is next asked."""
        if self._llm is None:
            return
        from vllm.distributed import cleanup_dist_env_and_memory

        self._llm.llm_engine.engine_core.shutdown()
        self._llm, VllmEngine._running = None, None
        cleanup_dist_env_and_memory()

    def _tokens(self, texts: list[str]) -> list[list[int]]:
        return self.tokenizer(texts, add_special_tokens=False)["input_ids"]

    def _reach(self, prompts: Sequence[Sequence[int]], budget: int, names: Sequence[str] | None) -> None:
        """Start the engine, or start it again, with room for the longest prompt and its completion."""
        limit = context_limit(self.policy)
        names = names or [f"prompt {i}" for i in range(len(prompts))]
        require_room(prompts, names, budget, model=self.policy.base, limit=limit)
        needed = max(map(len, prompts)) + budget
        if needed > self._context or self._llm is None:
            roomy = max(self._context, math.ceil(needed / CONTEXT_STEP) * CONTEXT_STEP)
            self.start(roomy if limit is None else min(roomy, limit))

    def _weights(self) -> str:
        """Folder of the weights to load: M0's, or a merged copy that lives as long as this object."""
        if self.policy.adapter is None or not self.merges:
            return self.policy.base
        if self._merged is None:
            self._merged = TemporaryDirectory(prefix="g2d-merged-")
            load_model(self.policy, exact=True).save_pretrained(self._merged.name)
            gc.collect()
        return self._merged.name

    def _completion(self, prompt: tuple[int, ...], sample: Any, decoding: Decoding) -> Completion:
        tokens = list(sample.token_ids)
        reason: FinishReason = sample.finish_reason
        if reason not in ("stop", "length"):
            raise RuntimeError(f"vLLM gave a completion up: {reason}")
        text = tokens[:-1] if reason == "stop" else tokens
        cut = prefixes(self.tokenizer, tokens, decoding.token_budgets)
        decoded = str(self.tokenizer.decode(text, skip_special_tokens=True))
        return Completion(decoded, len(tokens), reason, cut, prompt, tuple(tokens))  # with the end-of-turn token
