"""Convert a GGUF file to a folder in Hugging Face format with float32 weights, for `source: local`.

    python examples/gguf_to_hf.py small.gguf small-q4
    models: {small_q4: {source: local, path: small-q4}}

It needs the package gguf (envs/smollm2.txt). Dequantized weights differ from those of the original checkpoint, so have
the quantization in the name of the model: tables and page show it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def convert(file: Path, folder: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

    fields = numbers_and_texts(file)
    ends = end_tokens(file, fields)
    tokenizer = AutoTokenizer.from_pretrained(str(file.parent), gguf_file=file.name)
    set_special_tokens(tokenizer, fields, ends)
    quantized, loaded = AutoModelForCausalLM.from_pretrained(
        str(file.parent), gguf_file=file.name, dtype="float32", output_loading_info=True
    )
    if loaded["missing_keys"]:
        raise ValueError(f"{file}: has no weights for {min(loaded['missing_keys'])}")
    model = unquantized(quantized)
    model.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id, eos_token_id=ends, pad_token_id=tokenizer.pad_token_id
    )
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder.parent) as temporary:
        draft = Path(temporary, "model")
        model.save_pretrained(draft)
        tokenizer.save_pretrained(draft)
        draft.rename(folder)


def numbers_and_texts(file: Path) -> dict[str, Any]:
    """Return the fields of a GGUF file that have one value."""
    from gguf import GGUFReader

    fields = {}
    for name, field in GGUFReader(file).fields.items():
        if len(field.data) == 1:
            fields[name] = field.contents()
    return fields


def end_tokens(file: Path, fields: dict[str, Any]) -> list[int]:
    """Return the tokens that end a text, a turn, or a message."""
    ends = []
    for name in ("eos", "eot", "eom"):
        token = fields.get(f"tokenizer.ggml.{name}_token_id")
        if token is not None and token not in ends:
            ends.append(token)
    if not ends:
        raise ValueError(f"{file}: names no token that ends a text (tokenizer.ggml.eos_token_id): take another file")
    return ends


def set_special_tokens(tokenizer: PreTrainedTokenizerBase, fields: dict[str, Any], ends: list[int]) -> None:
    """Take them from the file: transformers guesses the end of a text, and sets no padding."""
    tokenizer.eos_token = tokenizer.convert_ids_to_tokens(ends[0])
    padding = fields.get("tokenizer.ggml.padding_token_id", ends[0])
    tokenizer.pad_token = tokenizer.convert_ids_to_tokens(padding)
    beginning = fields.get("tokenizer.ggml.bos_token_id")
    if beginning is not None:
        tokenizer.bos_token = tokenizer.convert_ids_to_tokens(beginning)
    tokenizer.clean_up_tokenization_spaces = False


def unquantized(model: PreTrainedModel) -> PreTrainedModel:
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


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    file, folder = map(Path, sys.argv[1:])
    if not file.is_file():
        sys.exit(f"{file}: does not exist")
    if folder.exists():
        sys.exit(f"{folder}: exists already")
    convert(file, folder)
    print(f"{folder}: float32 weights of {file.name}")


if __name__ == "__main__":
    main()
