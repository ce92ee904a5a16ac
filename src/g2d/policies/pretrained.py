"""Existing base models: a local folder, a repository on the Hub, a file of recorded completions."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

from g2d.jobs.files import sha256
from g2d.policies.policy import Policy, base_files, load_tokenizer
from g2d.policies.settings import HubModel, LocalModel, RecordedModel

# Pickled weights can run code on loading; only safetensors are fetched or read.
HUB_PATTERNS = ["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja"]


def resolve_base(name: str, source: LocalModel | HubModel | RecordedModel) -> Policy:
    """The record of M0; weights of the Hub are downloaded.

    Raises:
        ValueError: there are no safetensors, or its tokenizer cannot be used (`load_tokenizer`).
    """
    base = Policy(f"{name}/base", name, "base", base="", settings=source.params(without={"settings"}))
    if isinstance(source, RecordedModel):
        return replace(base, base=source.path, weights_sha256=sha256(source.path))
    if isinstance(source, HubModel):
        from huggingface_hub import snapshot_download

        folder = snapshot_download(source.id, revision=source.revision, allow_patterns=HUB_PATTERNS)
        _safetensors(folder, f"{source.id} at {source.revision[:8]}")
        base = replace(base, base=folder, revision=source.revision)
    else:
        digests = "".join(map(sha256, _safetensors(source.path, source.path)))  # of shards, in order of their names
        digest = hashlib.sha256(digests.encode()).hexdigest()
        base = replace(base, base=source.path, weights_sha256=digest, base_files=base_files(source.path))
    base = replace(base, chat_template_kwargs=source.chat_template_kwargs or None)
    load_tokenizer(base)
    return base


def _safetensors(folder: str, name: str) -> list[Path]:
    """The weights in a folder; pickled ones do not count."""
    if not (shards := sorted(Path(folder).glob("*.safetensors"))):
        raise ValueError(f"{name}: no *.safetensors in it; convert the model with save_pretrained first")
    return shards
