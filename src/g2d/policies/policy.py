"""A Policy: the record that says which weights answer, and how they came to be.

Every way to train a policy ends by writing `policy.json` beside its adapter, and every later stage starts from that
file alone. It carries the digest of the weights, so that a policy that changed makes its descendants stale and one
that was rebuilt identically does not.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from g2d.files import read_json, sha256, write_json

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True, slots=True)
class Policy:
    """One set of weights: a base model M0, or M0 with a LoRA adapter."""

    policy_id: str  # its folder below the results folder
    model: str  # name of M0 in the configuration
    regime: str  # base | grpo | dpo | the name of an ablation
    base: str  # folder of M0, or the file of completions of a recorded model
    group_size: int = 0
    k: int = 0
    seed: int | None = None
    revision: str | None = None  # commit of a Hub model
    adapter: str | None = None  # folder of the LoRA adapter, None for M0 itself
    weights_sha256: str | None = None  # of the adapter, or of M0 where it is a local file
    continued_from: int | None = None  # K of the checkpoint a chained warm-up continued from
    settings: dict[str, Any] = field(default_factory=dict)  # resolved settings of the stage that made it

    @property
    def is_recorded(self) -> bool:
        """Whether this is a file of completions rather than weights."""
        return self.settings.get("source") == "recorded"

    @property
    def public_base(self) -> str:
        """What the record of M0 calls it for others: its repository on the Hub, its folder from here, or a placeholder.

        An absolute path says nothing elsewhere but whose machine it was.
        """
        if "id" in self.settings:
            return str(self.settings["id"])
        folder = Path(self.base)
        if folder.is_absolute() or ".." in folder.parts:
            return f"path/to/{self.model}"
        return f"./{folder}"  # without the dot a folder that is not there is looked for on the Hub


def write_policy(path: str | Path, policy: Policy) -> None:
    """Write policy.json."""
    write_json(path, asdict(policy))


def read_policy(path: str | Path) -> Policy:
    """Read policy.json.

    Raises:
        ValueError: not a policy record; the message names the file.
    """
    try:
        return Policy(**read_json(path))
    except TypeError as error:
        raise ValueError(f"{path}: not a policy record ({error}); delete it to have it made again") from None


def load_tokenizer(policy: Policy) -> PreTrainedTokenizerBase:
    """The tokenizer of M0.

    Raises:
        ValueError: it has no chat template, so training and evaluation could not render the same prompt, or neither a
            token that pads nor one that ends a turn.
    """
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(policy.base, trust_remote_code=False)
    if tokenizer.chat_template is None:
        raise ValueError(f"{policy.base}: the tokenizer has no chat template; use an instruction-tuned model")
    if tokenizer.eos_token is None:
        raise ValueError(
            f"{policy.base}: the tokenizer has no eos_token, so no completion would end; name one in its "
            "tokenizer_config.json"
        )
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def end_tokens(policy: Policy, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Tokens that end a completion of a policy: all that M0 declares, as its own `generate` reads them, and the
    tokenizer's end of turn.

    Models declare several (Llama-3.1 ends a message, a turn or a text); who knows one of them takes completions that
    ended by another for truncated ones.
    """
    files = [Path(policy.base) / name for name in ("generation_config.json", "config.json")]
    ends = next((read_json(file).get("eos_token_id") for file in files if file.is_file()), None)
    listed = ends if isinstance(ends, list) else [] if ends is None else [ends]
    return frozenset(listed) | {tokenizer.eos_token_id}


def context_limit(policy: Policy) -> int | None:
    """Longest sequence of the model in tokens, where its configuration states one."""
    limit = read_json(Path(policy.base) / "config.json").get("max_position_embeddings")
    return int(limit) if limit is not None else None


def require_own_weights(policy: Policy) -> None:
    """Check that the adapter is the one that the record was written for.

    M0 itself is not read twice for this: what is cut short of it does not load.

    Raises:
        ValueError: the file is missing, cut short or another one; the message names it.
    """
    if policy.adapter is None:
        return
    file = Path(policy.adapter) / "adapter_model.safetensors"
    if not file.is_file() or (policy.weights_sha256 is not None and sha256(file) != policy.weights_sha256):
        raise ValueError(
            f"{file}: missing, cut short or not the weights that policy.json names; delete it to have it made again"
        )


def load_base(policy: Policy) -> PreTrainedModel:
    """The weights of M0, safetensors only, in bfloat16 on a GPU and float32 on a CPU.

    Raises:
        ValueError: a file of weights is cut short; the message names the folder.
    """
    import torch
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM

    if torch.cuda.is_available():
        from g2d.rollouts.engine_host import release

        release()  # an engine that waits for the next job holds the memory
    dtype = torch.bfloat16 if torch.cuda.is_available() else torch.float32
    try:
        return AutoModelForCausalLM.from_pretrained(
            policy.base, dtype=dtype, use_safetensors=True, trust_remote_code=False
        )
    except SafetensorError as error:
        raise ValueError(
            f"{policy.base}: its weights cannot be read ({error}); delete the file to have it made or fetched again"
        ) from None


def load_model(policy: Policy) -> PreTrainedModel:
    """The policy's weights with its adapter merged, in evaluation mode, on the GPU where there is one.

    Raises:
        ValueError: weights are cut short or are not those of the record; the message names them.
    """
    import torch

    require_own_weights(policy)
    model = load_base(policy)
    if policy.adapter is not None:
        from peft import PeftModel

        model = PeftModel.from_pretrained(model, policy.adapter).merge_and_unload()
    return model.eval().to("cuda" if torch.cuda.is_available() else "cpu")
