"""Keys of `models` and `lora`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypedDict

from pydantic import Field, model_validator

from g2d.jobs.model_folder import ONE_FILE, tensors
from g2d.settings import Revision, Section, key

if TYPE_CHECKING:
    from peft import LoraConfig
    from pydantic import GetJsonSchemaHandler
    from pydantic.json_schema import JsonSchemaValue
    from pydantic_core import CoreSchema

Variable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
CONTEXT_LENGTH = 256  # tokens, of the embedded model


class EmbeddedModel(Section):
    """The demonstration's model (`benchmarks/embedded_model.py`)."""

    source: Literal["embedded"] = key(..., "Use the model inside the package.")
    settings: dict[str, object] = key({}, "Sections with other values for this model.")


class WithTemplate(Section):
    """Keys of models that have a chat template."""

    chat_template_kwargs: dict[Variable, bool | int | float | str] = key(
        {}, "Variables of the chat template, as `{enable_thinking: false}`.", paper="none", neutral={}
    )


class LocalModel(WithTemplate):
    """A model in Hugging Face format in a local folder."""

    source: Literal["local"] = key(..., "Use a folder with config.json, safetensors and a tokenizer.")
    path: str = key(..., "The folder, relative to the working directory.", is_place=True)
    settings: dict[str, object] = key({}, "Sections with other values for this model.")


class HubModel(WithTemplate):
    """A model on the Hugging Face Hub, at a pinned revision."""

    source: Literal["hub"] = key(..., "Download from the Hub.")
    id: str = key(..., "Repository id.")
    revision: Revision = key(..., "Commit hash.")
    settings: dict[str, object] = key({}, "Sections with other values for this model.")


ModelSource = Annotated[EmbeddedModel | LocalModel | HubModel, Field(discriminator="source")]

LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # supported by vLLM's LoRA kernels


NONE = "none"
ALL_WEIGHTS = {"r": 0, "alpha": 0, "dropout": 0.0, "target_modules": []}  # meaning of `lora: none`


class TrainedFolder(TypedDict, total=False):
    """One of two fields of a `PolicyRecord`."""

    adapter: str
    weights: str


class Lora(Section):
    """PEFT LoRA for every training (paper, section 4.1); `lora: none` trains all weights."""

    r: int = key(16, "Rank.", paper="16", ge=0)
    alpha: int = key(32, "Scaling numerator.", paper="32", ge=0)
    dropout: float = key(0.05, "Dropout on the adapter's input.", paper="0.05", ge=0, lt=1)
    target_modules: str | list[str] = key("all-linear", "Modules that get an adapter.", paper="not stated")

    @model_validator(mode="before")
    @classmethod
    def _none(cls, values: object) -> object:
        if values == NONE:
            return ALL_WEIGHTS
        return values

    @model_validator(mode="after")
    def _one_or_the_other(self) -> Lora:
        if 0 in (self.r, self.alpha) and self.params() != ALL_WEIGHTS:
            raise ValueError("r and alpha are at least 1: to train all weights without an adapter, write lora: none")
        return self

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": [handler(schema), {"const": NONE}]}

    @property
    def trains_all(self) -> bool:
        return self.r == 0

    @property
    def files(self) -> tuple[str, str]:
        return ALL_FILES if self.trains_all else ADAPTER_FILES

    @property
    def folder(self) -> str:
        return str(Path(self.files[0]).parent)

    def folders(self, policy: str | Path) -> TrainedFolder:
        """Return the field of a `PolicyRecord` that names the folder of trained weights."""
        if self.trains_all:
            return {"weights": str(Path(policy, self.folder))}
        return {"adapter": str(Path(policy, self.folder))}


# Folders of a policy's trained weights: it has one of them.
ADAPTER_FOLDER = "adapter"
ALL_FOLDER = "weights"
ADAPTER_WEIGHTS = "adapter_model.safetensors"  # PEFT's name
ADAPTER_FILES = (f"{ADAPTER_FOLDER}/{ADAPTER_WEIGHTS}", f"{ADAPTER_FOLDER}/adapter_config.json")
ALL_FILES = (f"{ALL_FOLDER}/{ONE_FILE}", f"{ALL_FOLDER}/config.json")


def lora_config(lora: Lora) -> LoraConfig | None:
    if lora.trains_all:
        return None
    from peft import LoraConfig

    return LoraConfig(
        r=lora.r,
        lora_alpha=lora.alpha,
        lora_dropout=lora.dropout,
        target_modules=lora.target_modules,
        task_type="CAUSAL_LM",
    )


def model_files(source: ModelSource) -> list[str]:
    """Return the files of M0 outside of `results/`."""
    if isinstance(source, LocalModel):
        files = {Path(source.path, CONFIG), *found(source.path, BASE_FILES), *found(source.path, WEIGHT_FILES)}
        return sorted(map(str, files))
    return []


CONFIG = "config.json"
VOCABULARIES = ("vocab.json", "vocab.txt", "merges.txt", "tekken.json", "*.model", "*.tiktoken")
WEIGHT_FILES = ("*.safetensors",)
# Read by transformers and vLLM, in addition to the weights.
BASE_FILES = (
    *(CONFIG, "generation_config.json", "model.safetensors.index.json"),
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("chat_template.jinja", "chat_template.json", "additional_chat_templates/*.jinja"),
    *("preprocessor_config.json", "processor_config.json"),  # of models that also read images
    *VOCABULARIES,
)


def found(folder: str | Path, patterns: Iterable[str]) -> list[Path]:
    files: list[Path] = []
    for pattern in patterns:
        files += Path(folder).glob(pattern)
    return sorted(files)


def file_of(source: ModelSource, name: str = CONFIG) -> Path | None:
    if isinstance(source, LocalModel):
        file = Path(source.path, name)
    elif isinstance(source, HubModel):
        file = snapshot("model", source.id, source.revision) / name
    else:
        return None
    if file.is_file():
        return file
    return None


def snapshot(repo_type: str, repo_id: str, revision: str) -> Path:
    """Return a repository's folder in the Hub's cache; `try_to_load_from_cache` takes 0.3 s to import."""
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE, f"{repo_type}s--{repo_id.replace('/', '--')}/snapshots/{revision}")


BYTES = 2  # per parameter
ASSUMED_PARAMETERS = 7.6e9


def _parameters(file: Path) -> float:
    """Count the parameters in a safetensors file, or estimate them from its size."""
    try:
        return float(sum(prod(entry["shape"]) for entry in tensors(file).values()))
    except (ValueError, TypeError, KeyError):
        return file.stat().st_size / BYTES


def parameters(source: ModelSource) -> float:
    """Return the number of parameters: of the weights, else in the model's name, else `ASSUMED_PARAMETERS`."""
    if isinstance(source, LocalModel):
        size = sum(map(_parameters, Path(source.path).glob("*.safetensors")))
        if size:
            return size
        name = source.path
    elif isinstance(source, HubModel):
        name = source.id
    else:
        name = ""
    match = re.search(r"(?<![\d.])(\d+(?:\.\d+)?)([bm])(?![a-z])", name.rpartition("/")[2].lower())
    if match is None:
        return ASSUMED_PARAMETERS
    unit = 1e9 if match[2] == "b" else 1e6
    return float(match[1]) * unit
