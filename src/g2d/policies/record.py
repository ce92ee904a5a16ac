"""Record of a policy (`policy.json`): its weights, and how they were trained.

It has digests, so later results become stale only if the policy has changed.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from g2d import __version__
from g2d.jobs.digests import remembered_digest
from g2d.jobs.files import read_json, sha256, text_value, write_json
from g2d.jobs.model_folder import attention_of, hide_progress, tensors
from g2d.plain import first_line, say
from g2d.policies.model_keys import (
    ADAPTER_FILES,
    ADAPTER_WEIGHTS,
    ALL_FILES,
    BASE_FILES,
    CONFIG,
    VOCABULARIES,
    WEIGHT_FILES,
    found,
)
from g2d.problems.prompts import CLOCK, DATE, ChatTemplateError, render, with_values

if TYPE_CHECKING:
    import torch
    from peft import PeftModel
    from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

DELETE = "delete the folder to have it made again"


@dataclass(frozen=True, slots=True)
class PolicyRecord:
    policy_id: str  # its folder, relative to the results folder
    model: str  # M0 in the configuration
    regime: str  # its run: base, grpo, dpo, NAME/grpo or NAME/dpo of an ablation, NAME of an entry of `regimes`, ...
    base: str  # folder of M0
    group_size: int = 0
    k: int = 0
    seed: int | None = None
    revision: str | None = None
    adapter: str | None = None  # folder of the LoRA adapter
    weights_sha256: str | None = None  # digest of trained weights, or a local M0
    continued_from: int | None = None  # K of the checkpoint that a chained warm-up continued
    started_from: str | None = None  # policy_id; None for M0
    settings: dict[str, Any] = field(default_factory=dict)  # params of its job
    statistics: dict[str, Any] = field(default_factory=dict)  # of its training: pairs, gradient steps, rounding
    base_files: dict[str, str] | None = None  # digests of `BASE_FILES` by name
    effect_left: float | None = None  # share of the adapter's effect after two roundings
    weights: str | None = None  # folder of fully trained weights
    chat_template_kwargs: Mapping[str, object] | None = None

    @property
    def is_embedded(self) -> bool:
        """Whether M0 is the embedded model; it computes in float32 on a CPU, reproducibly bit by bit."""
        return self.settings.get("source") == "embedded"

    @property
    def trained(self) -> str | None:
        return self.adapter or self.weights

    @property
    def files(self) -> list[Path]:
        """Files of the trained weights; none for M0."""
        if self.trained is None:
            return []
        names = ADAPTER_FILES if self.adapter else ALL_FILES
        return [Path(self.trained, Path(name).name) for name in names]

    @property
    def model_folder(self) -> str:
        return self.weights or self.base

    @property
    def public_base(self) -> str:
        """M0's Hub repository, relative folder, or a placeholder: no path of the machine."""
        if "id" in self.settings:
            return str(self.settings["id"])
        folder = Path(self.base)
        if folder.is_absolute() or ".." in folder.parts:
            return f"path/to/{self.model}"
        return f"./{folder}"  # without the dot, transformers would look for a missing folder on the Hub


def as_json(policy: PolicyRecord) -> dict[str, object]:
    """Return the record as written, without fields that are None: a new field changes no other policy's record."""
    return {name: value for name, value in asdict(policy).items() if value is not None}


def write_policy(path: str | Path, policy: PolicyRecord) -> None:
    write_json(path, as_json(policy))


def read_policy(path: str | Path) -> PolicyRecord:
    """Read policy.json; a ValueError names the file."""
    values = read_json(path)
    unknown = values.keys() - {field.name for field in fields(PolicyRecord)}
    if unknown:
        raise ValueError(
            f"{path}: has {', '.join(sorted(unknown))}, which g2d {__version__} does not know: a newer version "
            "made it, so use that one"
        )
    try:
        return PolicyRecord(**values)
    except TypeError as error:
        raise ValueError(f"{path}: not a policy record ({error}); delete it to have it made again") from None


def read_own_policy(path: str | Path) -> PolicyRecord:
    """Read policy.json to load its weights; a ValueError if it belongs to another policy."""
    policy = read_policy(path)
    if not f"/{Path(path).parent.as_posix()}".endswith(f"/{policy.policy_id}"):
        raise ValueError(
            f"{path}: the record of {policy.policy_id}, copied here; delete it to have the policy of this folder made"
        )
    return policy


def base_files(folder: str | Path) -> dict[str, str]:
    return {file.relative_to(folder).as_posix(): sha256(file) for file in found(folder, BASE_FILES)}


def tokenizer_sha256(folder: str | Path) -> str:
    fast = Path(folder, "tokenizer.json")
    if fast.is_file():
        return sha256(fast)
    lines = [f"{file.name} {sha256(file)}\n" for file in found(folder, VOCABULARIES)]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def load_tokenizer(policy: PolicyRecord) -> PreTrainedTokenizerBase:
    """Load M0's tokenizer, with `chat_template_kwargs` in its chat template.

    A ValueError names a folder that lacks an eos token or a chat template with these variables.
    """
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(policy.base, trust_remote_code=False)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{policy.base}: its tokenizer cannot be read ({first_line(error)}); {_way_back(policy)}"
        ) from error
    tokenizer.response_template = None  # TRL would judge only a part of a completion
    if tokenizer.chat_template is None:
        raise ValueError(f"{policy.base}: the tokenizer has no chat template; use an instruction-tuned model")
    if policy.chat_template_kwargs:
        template = tokenizer.get_chat_template()
        for name in policy.chat_template_kwargs:
            read_as = CLOCK if name == DATE and CLOCK in template else name
            if not re.search(rf"\b{read_as}\b", template):
                raise ValueError(
                    f"{policy.base}: its chat template has no variable {name}: drop it from models.{policy.model}."
                    "chat_template_kwargs"
                )
        tokenizer.chat_template = with_values(template, policy.chat_template_kwargs)
    if tokenizer.eos_token is None:
        raise ValueError(
            f"{policy.base}: the tokenizer has no eos_token, so no completion would end; name one in its "
            "tokenizer_config.json"
        )
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def _way_back(policy: PolicyRecord) -> str:
    is_made_by_a_job = policy.trained is not None or Path(policy.base).with_name("policy.json").exists()
    if is_made_by_a_job:
        return DELETE
    return "put a complete copy of the model there (save_pretrained writes one, tokenizer included)"


def end_tokens(policy: PolicyRecord, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Return the tokens that end a completion.

    Three places name such tokens: the tokenizer; the first of M0's files that declares some, as in transformers; and
    the chat template, in the token that closes a turn. Some models list that token in no file. A config.json beside a
    generation_config.json is not read: it often has the default of its class, and that can be an ordinary token.
    """
    ends = {int(tokenizer.eos_token_id)}
    for name in ("generation_config.json", "config.json"):
        file = Path(policy.base) / name
        if not file.is_file():
            continue
        declared = text_value(read_json(file), "eos_token_id")
        if isinstance(declared, list):
            ends.update(declared)
        elif declared is not None:
            ends.add(declared)
        if declared is not None:
            break
    closing = _closing_token(tokenizer)
    if closing is not None:
        ends.add(closing)
    return frozenset(ends)


def _closing_token(tokenizer: PreTrainedTokenizerBase) -> int | None:
    """Return the special token right behind an assistant's answer in the chat template, None if there is none."""
    answer = "g2d-answer"
    turns = [{"role": "user", "content": "?"}, {"role": "assistant", "content": answer}]
    try:
        rendered = render(tokenizer, turns, add_generation_prompt=False)
    except ChatTemplateError:  # rendering the prompts reports it
        return None
    _, found, behind = rendered.rpartition(answer)
    if not found:
        return None
    for number, token in tokenizer.added_tokens_decoder.items():
        if token.special and token.content and behind.lstrip().startswith(token.content):
            return int(number)
    return None


def ends_in_words(tokenizer: PreTrainedTokenizerBase, ends: Iterable[int]) -> str:
    """Return a line for logs that names the tokens at which a completion ends."""
    tokens = tokenizer.convert_ids_to_tokens(sorted(ends))
    return f"a completion ends at {' or '.join(str(token) for token in tokens)}"


def context_limit(policy: PolicyRecord) -> int | None:
    limit = text_value(read_json(Path(policy.base) / "config.json"), "max_position_embeddings")
    if limit is None:
        return None
    return int(limit)


def require_own_weights(policy: PolicyRecord) -> None:
    """Raise a ValueError if the trained weights do not match the record."""
    if not policy.files:
        return
    file = policy.files[0]
    recorded = policy.weights_sha256
    if not file.is_file() or (recorded is not None and remembered_digest(file) != recorded):
        raise ValueError(
            f"{file}: missing, cut short or not the weights that policy.json names; delete it to have it made again"
        )


def load_base(policy: PolicyRecord, *, exact: bool = False) -> PreTrainedModel:
    """Load M0, or full weights, from safetensors; in float32 if `exact`.

    A ValueError names weights that are missing (transformers would initialise them at random) or unexpected.
    """
    import torch

    dtype = torch.float32 if exact else precision()
    return _from_safetensors(policy.model_folder, _way_back(policy), dtype=dtype)


def load_into(model: PreTrainedModel, folder: str | Path) -> None:
    """Load full weights in a folder into a model, in place; a ValueError as from `load_base`.

    The file has the names of the published model; some architectures rename and stack them in memory.
    """
    loaded = _from_safetensors(str(folder), DELETE, dtype=model.dtype)
    model.load_state_dict(loaded.state_dict())


def require_whole(policy: PolicyRecord) -> None:
    """Raise a ValueError as `load_base` does if weights are missing or unexpected, without reading them.

    A quantized model may need a GPU even for that, so its jobs check.
    """
    if "quantization_config" not in read_json(Path(policy.model_folder) / "config.json"):
        _from_safetensors(policy.model_folder, _way_back(policy), device_map="meta")


def _from_safetensors(folder: str, way_back: str, **options: object) -> PreTrainedModel:
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM

    hide_progress()
    try:
        model, loaded = AutoModelForCausalLM.from_pretrained(
            folder,
            attn_implementation=attention_of(read_json(Path(folder, CONFIG))),
            use_safetensors=True,
            trust_remote_code=False,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # `_require_all_weights` reports them
            **options,
        )
    except SafetensorError as error:
        raise ValueError(f"{folder}: its weights cannot be read ({error}); {way_back}") from None
    except RuntimeError as error:  # transformers cannot stack the experts of a file, and only logs the reason
        missing, unexpected = _other_names(folder)
        if not missing | unexpected:
            raise
        raise ValueError(f"{folder}: {_mistakes(missing, unexpected)}; {way_back}") from error
    _require_all_weights(folder, way_back, loaded)
    _say_what_is_ignored(model, folder)
    return model


def _require_all_weights(folder: str, way_back: str, loaded: Mapping[str, Any]) -> None:
    """Raise a ValueError if transformers initialised weights at random or left some out, by its loading info."""
    missing = set(loaded["missing_keys"])
    missing.update(name for name, *_ in loaded["mismatched_keys"])
    unexpected = set(loaded["unexpected_keys"])
    if not missing | unexpected:
        return
    not_in_file, only_in_file = _other_names(folder)
    if not_in_file | only_in_file:
        missing, unexpected = not_in_file, only_in_file
    raise ValueError(f"{folder}: {_mistakes(missing, unexpected)}; {way_back}")


def _other_names(folder: str) -> tuple[set[str], set[str]]:
    """Return which tensors of an architecture with other names in its file are missing there, and which are unexpected.

    Both are empty for other architectures: for them, transformers' loading info has the names of the file.
    """
    from transformers.core_model_loading import revert_weight_conversion

    model = on_meta(config_of(Path(folder, CONFIG)))
    all_names = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    tied = all_names - {name for name, _ in model.named_parameters()}
    in_memory = {name: tensor for name, tensor in model.state_dict().items() if name not in tied}
    published = revert_weight_conversion(model, in_memory).keys()
    if published == in_memory.keys():
        return set(), set()
    stored: set[str] = set()
    for file in found(folder, WEIGHT_FILES):
        stored |= tensors(file).keys()
    only_stored = stored - published
    return published - stored, only_stored - _ignorable(model, only_stored)


def _ignorable(model: PreTrainedModel, names: Iterable[str]) -> set[str]:
    """Return the names that the model's class declares as unused, such as heads for several tokens."""
    patterns = model._keys_to_ignore_on_load_unexpected or ()
    return {name for name in names if any(re.search(pattern, name) for pattern in patterns)}


def _say_what_is_ignored(model: PreTrainedModel, folder: str) -> None:
    if not model._keys_to_ignore_on_load_unexpected:
        return
    stored: set[str] = set()
    for file in found(folder, WEIGHT_FILES):
        stored |= tensors(file).keys()
    ignored = _ignorable(model, stored) - model.state_dict().keys()
    if ignored:
        say(f"{folder}: {type(model).__name__} does not use {first_of(ignored)}", file=sys.stderr)


def config_of(file: Path) -> PreTrainedConfig:
    """Read a config.json, without code of the model's own."""
    from transformers import AutoConfig

    config: PreTrainedConfig = AutoConfig.from_pretrained(file, trust_remote_code=False)
    return config


def on_meta(config: PreTrainedConfig, *, scores: bool = False, **options: object) -> PreTrainedModel:
    """Return the model of a configuration, without weights, as `load_base` or, if it `scores`, a reward loads it."""
    import torch
    from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

    attention = attention_of(config.to_dict())
    kind = AutoModelForSequenceClassification if scores else AutoModelForCausalLM
    with torch.device("meta"):
        model: PreTrainedModel = kind.from_config(config, attn_implementation=attention, **options)
    return model


def _mistakes(missing: Collection[str], unexpected: Collection[str]) -> str:
    mistakes: list[str] = []
    if missing:
        mistakes.append(
            f"no weights of the right shape for {first_of(missing)}, which transformers would initialise at random"
        )
    if unexpected:
        mistakes.append(f"unexpected weights {first_of(unexpected)}, which transformers would leave out")
    return ", and ".join(mistakes)


def first_of(names: Collection[str]) -> str:
    """Return the first name of tensors, and how many others there are."""
    if len(names) == 1:
        return min(names)
    return f"{min(names)} and {len(names) - 1} other tensors"


def precision() -> torch.dtype:
    import torch

    return torch.bfloat16 if torch.cuda.is_available() else torch.float32


def load_model(policy: PolicyRecord, *, exact: bool = False) -> PreTrainedModel:
    """Load the policy for evaluation; an adapter is merged if the weights are float32, as with `exact`."""
    import torch

    require_own_weights(policy)
    model = load_base(policy, exact=exact)
    if policy.adapter is not None:
        model = apply_adapter(model, policy.adapter)
    return model.eval().to("cuda" if torch.cuda.is_available() else "cpu")


def apply_adapter(model: PreTrainedModel, folder: str | Path) -> PreTrainedModel:
    """Apply the adapter in a folder to a model, in place.

    It is not merged into bfloat16 weights: rounding would remove most of it (docs/performance.md).
    """
    import torch

    adapted = with_adapter(model, folder)
    if model.dtype == torch.float32:
        return adapted.merge_and_unload()
    return adapted.get_base_model()


def with_adapter(model: PreTrainedModel, folder: str | Path, *, is_trainable: bool = False) -> PeftModel:
    """Load the adapter in a folder onto a model."""
    from peft import PeftModel

    # PEFT would read the file onto the GPU: that initialises CUDA, and vLLM forks for several GPUs.
    adapted = PeftModel.from_pretrained(model, str(folder), is_trainable=is_trainable, torch_device="cpu")
    require_whole_adapter(adapted, folder, "default")
    return adapted


def require_whole_adapter(model: PeftModel, folder: str | Path, adapter: str) -> None:
    """Raise a ValueError if a file lacks weights of an adapter, or has others: PEFT at most warns, and skips them."""
    from peft import get_peft_model_state_dict

    file = Path(folder) / ADAPTER_WEIGHTS
    expected = get_peft_model_state_dict(model, adapter_name=adapter, save_embedding_layers=False)
    known = get_peft_model_state_dict(model, adapter_name=adapter, save_embedding_layers=True)
    require_names(file, tensors(file).keys(), expected.keys(), known.keys())


def require_names(file: Path, names: Collection[str], expected: Collection[str], known: Collection[str] = ()) -> None:
    """Raise a ValueError if a file lacks expected tensors, or has others that are not `known`."""
    missing = set(expected) - set(names)
    unexpected = set(names) - set(expected) - set(known)
    if missing:
        raise ValueError(f"{file}: no weights for {first_of(missing)}; delete it to have it made again")
    if unexpected:
        raise ValueError(f"{file}: unexpected weights {first_of(unexpected)}; delete it to have it made again")
