"""Completions from vLLM in this process.

vLLM only sees tokens. Each prompt has a seed from (seed, problem), so a rollout does not depend on other prompts. This
holds bit for bit on a CPU in float32, and except for near-ties on a GPU in bfloat16.
"""

from __future__ import annotations

import gc
import math
import multiprocessing
import os
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

from g2d.jobs.files import read_json
from g2d.jobs.temporary import temporary_folder
from g2d.policies.model_keys import LORA_RANKS
from g2d.policies.record import (
    PolicyRecord,
    context_limit,
    end_tokens,
    load_model,
    load_tokenizer,
    precision,
    require_own_weights,
)
from g2d.rollouts.engine import Decoding, ModelEngine, Request, Sampled
from g2d.rollouts.free_memory import require_free
from g2d.rollouts.rollout_keys import SEQUENCES, EngineSettings
from g2d.rollouts.sampling import request_seed
from g2d.rollouts.weights_check import (
    PREFIXES,
    Reference,
    candidates,
    checked,
    fixed_texts,
    policy_reference,
    require_policy,
    require_same,
)

CONTEXT_STEP = 256  # tokens
CPU_BATCH = 8192  # prompt tokens per step on a CPU
CPU_BLOCK = 128  # tokens per cache block of vLLM on a CPU
MOST_CPU_CACHE = 2**30  # bytes of keys and values; vLLM's default is most of the machine's memory


class VllmEngine(ModelEngine):
    """Generates with a vLLM that starts at the first `generate`, and again for a longer context.

    Raises a WrongWeightsError before the first completion after a start if the weights are not the policy's.

    Args:
        adapter_rank: rank of the adapters for `use_adapter`; None if only the policy's adapter is used.
        memory_utilization: share of the GPU's memory, if not the one in `settings`.
        most_sequences: most concurrent completions, if fewer than `SEQUENCES`.
    """

    name = "vllm"
    _running: ClassVar[VllmEngine | None] = None  # vLLM's distributed state is global to the process

    def __init__(
        self,
        policy: PolicyRecord,
        settings: EngineSettings | None = None,
        *,
        adapter_rank: int | None = None,
        memory_utilization: float | None = None,
        most_sequences: int | None = None,
    ) -> None:
        tokenizer = load_tokenizer(policy)
        super().__init__(tokenizer, end_tokens(policy, tokenizer), (policy.base, context_limit(policy)))
        self.policy = policy
        self._served = policy
        self._unchecked: PolicyRecord | None = policy  # policy whose weights are compared before its first completion
        self.settings = settings or EngineSettings(name="vllm")
        self.memory_utilization = memory_utilization or self.settings.gpu_memory_utilization
        self.most_sequences = most_sequences
        self.merges = merges_adapters(self.settings)
        # Merged weights stay in float32: rounding would lose most of a small adapter.
        exact = self.merges and policy.adapter is not None
        self.dtype = "float32" if exact else str(precision()).removeprefix("torch.")
        self._llm: Any = None
        self._room = 0  # tokens that the running engine can hold
        self._expected = 0  # tokens of the longest request that is known
        self._merged: TemporaryDirectory[str] | None = None
        self._adapter: Any = None
        self._adapters_seen = 0
        require_own_weights(policy)
        own_rank = 0 if policy.adapter is None or self.merges else adapter_rank_of(policy.adapter)
        rank = max(adapter_rank or 0, own_rank)
        self.max_lora_rank: int | None = None
        if rank:
            self.max_lora_rank = min(known for known in LORA_RANKS if known >= rank)
        if not self.merges:
            self._load_adapter(policy.adapter)

    def _samples(
        self, prompts: Sequence[Sequence[int]], names: Sequence[str], decoding: Decoding
    ) -> list[list[Sampled]]:
        """Sample; vLLM ignores `decoding.batch_size`."""
        drawn: list[list[Sampled]] = []
        for output in self._complete(prompts, names, decoding):
            drawn.append([(list(sample.token_ids), sample.finish_reason) for sample in output.outputs])
        return drawn

    def _complete(
        self,
        prompts: Sequence[Sequence[int]],
        names: Sequence[str],
        decoding: Decoding,
        log_probabilities: int | None = None,
    ) -> list[Any]:
        """Return vLLM's outputs, in order, or raise a RuntimeError if a completion is not finished.

        Sample j of a prompt uses the seed of its name + j.
        `log_probabilities=0` adds the log-probabilities of the sampled tokens, after temperature.
        """
        self._prepare(prompts, decoding.max_completion_length)
        from vllm import SamplingParams

        is_random = decoding.temperature > 0
        parameters: list[SamplingParams] = []
        for name in names:
            of_prompt = SamplingParams(
                n=decoding.samples_per_prompt,
                temperature=decoding.temperature,
                top_p=decoding.top_p,
                top_k=0,
                seed=request_seed(decoding.seed, name) if is_random else None,
                max_tokens=decoding.max_completion_length,
                stop_token_ids=sorted(self.end_ids),
                logprobs=log_probabilities,
                detokenize=False,
            )
            parameters.append(of_prompt)
        tokens = [{"prompt_token_ids": list(prompt)} for prompt in prompts]
        outputs: list[Any] = self._llm.generate(tokens, parameters, lora_request=self._adapter, use_tqdm=False)
        for output in outputs:
            for sample in output.outputs:
                if sample.finish_reason not in ("stop", "length"):
                    raise RuntimeError(f"vLLM gave a completion up: {sample.finish_reason}")
        return outputs

    def sample(
        self, prompts: Sequence[Sequence[int]], names: Sequence[str], decoding: Decoding
    ) -> tuple[list[list[int]], list[list[float]]]:
        """Sample a completion per tokenized prompt: its tokens, with the end of the turn, and the log-probabilities
        that they were sampled with. Random numbers depend on the names.
        """
        completions: list[list[int]] = []
        log_probabilities: list[list[float]] = []
        for output in self._complete(prompts, names, decoding, log_probabilities=0):
            sample = output.outputs[0]
            tokens = list(sample.token_ids)
            completions.append(tokens)
            log_probabilities.append([of[token].logprob for token, of in zip(tokens, sample.logprobs, strict=True)])
        return completions, log_probabilities

    def score(self, texts: Sequence[Sequence[int]]) -> list[list[float]]:
        """Return the policy's `log_probabilities` by the running engine, without effect on later completions.

        Each prefix is a prompt: vLLM's `prompt_logprobs` fails with adapters on a CPU.
        """
        import torch
        from vllm import SamplingParams

        scored = candidates(texts)
        scores = {"logprobs": len(scored), "logprob_token_ids": scored}
        parameters = SamplingParams(temperature=1.0, seed=0, max_tokens=1, detokenize=False, **scores)
        prompts = [{"prompt_token_ids": list(text[:end])} for text, end in product(texts, range(-PREFIXES, 0))]
        devices = [torch.cuda.current_device()] if torch.cuda.is_initialized() else []
        with torch.random.fork_rng(devices):  # vLLM in a trainer's process uses its random numbers
            outputs = self._llm.generate(prompts, parameters, lora_request=self._adapter, use_tqdm=False)
        self._llm.reset_prefix_cache()
        log_probabilities: list[list[float]] = []
        for output in outputs:
            of_prefix = output.outputs[0].logprobs[0]
            log_probabilities.append([of_prefix[token].logprob for token in scored])
        return log_probabilities

    def compare(self, name: str, reference: Reference) -> None:
        """Raise a WrongWeightsError if the running engine does not answer like the policy `name` in `reference`."""
        require_same(name, self, self.score(fixed_texts(self.tokenizer)), reference)

    def serve(self, policy: PolicyRecord) -> None:
        """Generate with a policy's adapter or with M0, and compare the weights before the first completion."""
        self._load_adapter(policy.adapter)
        self._served = self._unchecked = policy

    def use_adapter(self, folder: str | Path | None) -> None:
        """Generate with the adapter in a folder from now on; None: with M0. Its owner compares the weights.

        Raises a ValueError if the engine does not support adapters, or only smaller ones.
        """
        self._load_adapter(folder)
        self._served = replace(self.policy, adapter=None if folder is None else str(folder), weights_sha256=None)
        self._unchecked = None

    def _load_adapter(self, folder: str | Path | None) -> None:
        if folder is None:
            self._adapter = None
            return
        if self.max_lora_rank is None:
            raise ValueError(f"{folder}: this engine holds merged weights; set engine.adapters: lora to exchange them")
        rank = adapter_rank_of(folder)
        if rank > self.max_lora_rank:
            raise ValueError(f"{folder}: its rank {rank} exceeds the {self.max_lora_rank} this engine was made for")
        prepare_environment()
        from vllm.lora.request import LoRARequest

        # A new number for every version: vLLM caches weights and prefixes by number.
        self._adapters_seen += 1
        self._adapter = LoRARequest(f"adapter-{self._adapters_seen}", self._adapters_seen, str(Path(folder).resolve()))
        if self._llm is not None:
            self._llm.llm_engine.add_lora(self._adapter)

    def expect(self, requests: Sequence[Request], max_completion_length: int) -> None:
        """See `Engine`: a longer context later would start vLLM again."""
        self._note([request.prompt_ids for request in requests], max_completion_length)

    def start_for(self, requests: Sequence[Request], max_completion_length: int) -> None:
        self.expect(requests, max_completion_length)
        self.start(self._context())

    def start(self, context: int) -> None:
        """Start with room for `context` tokens of prompt and completion; closes a running engine of this process.

        vLLM seeds the random generators of the process, so start it before anything that draws from them.
        """
        if VllmEngine._running is not None:
            VllmEngine._running.close()
        require_semaphores()
        prepare_environment()
        from vllm import LLM

        gpu = on_gpu()
        sequences = min(SEQUENCES, self.most_sequences or SEQUENCES)
        # The check initialises CUDA, and vLLM forks for several GPUs.
        if gpu and self.settings.tensor_parallel_size == 1:
            require_free(self.memory_utilization)
        arguments: dict[str, Any] = {
            "model": self._weights(),
            "skip_tokenizer_init": True,
            "load_format": "safetensors",  # pickled weights can run code on loading
            "dtype": self.dtype,
            "max_model_len": context,
            "enable_prefix_caching": True,
            "generation_config": "vllm",  # use no default of the model
            "logprobs_mode": "processed_logprobs",
            "seed": 0,
            "disable_log_stats": True,
        }
        if gpu:
            arguments["gpu_memory_utilization"] = self.memory_utilization
            arguments["tensor_parallel_size"] = self.settings.tensor_parallel_size
        else:
            # Prompts that are read in chunks rewind a random generator, and vLLM's CPU build cannot.
            arguments["enable_chunked_prefill"] = False
            arguments["max_num_batched_tokens"] = max(context, CPU_BATCH)
            arguments["enforce_eager"] = True  # compiling takes longer than a small model's whole harvest
            arguments["kv_cache_memory_bytes"] = cpu_cache_bytes(self.policy.base, sequences, context)
        if sequences < SEQUENCES:
            arguments["max_num_seqs"] = sequences
        if self.max_lora_rank is not None:
            arguments |= {"enable_lora": True, "max_lora_rank": self.max_lora_rank, "max_loras": 1}
        self._llm = LLM(**arguments)
        self._room = context
        self._unchecked = self._served
        VllmEngine._running = self

    def close(self) -> None:
        if self._llm is None:
            return
        from vllm.distributed import cleanup_dist_env_and_memory

        self._llm.llm_engine.engine_core.shutdown()
        self._llm = None
        VllmEngine._running = None
        cleanup_dist_env_and_memory()

    def _prepare(self, prompts: Sequence[Sequence[int]], budget: int) -> None:
        """Start vLLM if it lacks room for the prompts, and compare the weights if that is due."""
        self._note(prompts, budget)
        has_room = self._llm is not None and self._expected <= self._room
        policy = self._unchecked if has_room else self._served
        if policy is None:
            return
        # Before the start, because the GPU has room then. vLLM forks for several GPUs, which CUDA must not precede.
        texts = fixed_texts(self.tokenizer)
        reference = policy_reference(policy, texts, may_use_gpu=self.settings.tensor_parallel_size == 1)
        if not has_room:
            self.start(self._context())
        if reference is not None:
            with checked(self.settings.check):
                require_policy(self, policy, texts, reference)
        self._unchecked = None

    def _note(self, prompts: Sequence[Sequence[int]], budget: int) -> None:
        longest = max(map(len, prompts), default=0)
        self._expected = max(self._expected, self._within_limit(longest + budget))

    def _context(self) -> int:
        """Return the context of a new engine, rounded up for requests that nobody announced."""
        return self._within_limit(math.ceil(max(self._expected, self._room) / CONTEXT_STEP) * CONTEXT_STEP)

    def _within_limit(self, tokens: int) -> int:
        _, limit = self.context
        return tokens if limit is None else min(tokens, limit)

    def _weights(self) -> str:
        if self.policy.adapter is None or not self.merges:
            return self.policy.model_folder
        if self._merged is None:
            self._merged = temporary_folder("merged")
            load_model(self.policy, exact=True).save_pretrained(self._merged.name)
            gc.collect()
        return self._merged.name


def cpu_cache_bytes(base: str | Path, sequences: int, context: int) -> int:
    """Return bytes of keys and values in float32, at most 1 GiB: vLLM's CPU build zeroes them at every start."""
    config = read_json(Path(base) / "config.json")
    try:
        heads = config["num_attention_heads"]
        width = config.get("head_dim") or config["hidden_size"] // heads
        layers = config["num_hidden_layers"]
        heads = config.get("num_key_value_heads") or heads
    except KeyError:  # a configuration with other names
        return MOST_CPU_CACHE
    blocks = sequences * -(-context // CPU_BLOCK) + 1  # vLLM uses the first block itself
    return int(min(MOST_CPU_CACHE, blocks * CPU_BLOCK * 2 * layers * heads * width * 4))


def prepare_environment() -> None:
    """Set variables that vLLM reads on import; existing ones are kept."""
    # An engine subprocess would import the job's script again.
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    # FlashInfer's sampler has no random numbers per request.
    os.environ.setdefault("VLLM_USE_FLASHINFER_SAMPLER", "0")
    if not on_gpu():
        import torch._dynamo.config

        # vLLM would compile the ranking of log-probabilities: seconds per process, and a C++ compiler.
        torch._dynamo.config.disable = True
        # Bound threads of two jobs would share the same cores.
        os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")


def require_semaphores() -> None:
    """Raise a ValueError if this process cannot make a semaphore: vLLM's error names no folder."""
    try:
        multiprocessing.Lock()
    except OSError as error:
        raise ValueError(
            f"/dev/shm: vLLM cannot make a semaphore there ({error.strerror}): mount it writable, or set "
            "engine.name: transformers"
        ) from None


def on_gpu() -> bool:
    import torch

    return bool(torch.cuda.is_available())


def merges_adapters(settings: EngineSettings) -> bool:
    """Return whether a policy's adapter is merged.

    `auto` merges on a CPU: that is three times faster. A float32 copy of an 8B model would take 32 GB on the GPU.
    """
    return settings.adapters == "merge" or (settings.adapters == "auto" and not on_gpu())


def adapter_rank_of(folder: str | Path) -> int:
    return int(read_json(Path(folder) / "adapter_config.json")["r"])
