"""Records of base models."""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import replace
from pathlib import Path

from g2d.jobs.digests import remembered_digest
from g2d.jobs.files import atomic_folder, sha256
from g2d.policies.embedded import copy_embedded
from g2d.policies.model_keys import (
    BASE_FILES,
    WEIGHT_FILES,
    EmbeddedModel,
    HubModel,
    LocalModel,
    ModelSource,
    found,
)
from g2d.policies.record import PolicyRecord, base_files, load_tokenizer, require_whole
from g2d.problems.prompts import ChatTemplateError, conversation_ids, require_finite

# Pickled weights can run code on loading.
HUB_PATTERNS = ["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja"]


def resolve_base(name: str, source: LocalModel | HubModel) -> PolicyRecord:
    """Return M0 in its own folder, downloaded from the Hub; a ValueError if its tokenizer or weights cannot be used."""
    base = PolicyRecord(f"{name}/base", name, "base", base="", settings=source.params(without={"settings"}))
    if isinstance(source, HubModel):
        from huggingface_hub import snapshot_download

        folder = snapshot_download(source.id, revision=source.revision, allow_patterns=HUB_PATTERNS)
        _safetensors(folder, f"{source.id} at {source.revision[:8]}")
        base = replace(base, base=folder, revision=source.revision)
    else:
        digests = [remembered_digest(shard) for shard in _safetensors(source.path, source.path)]
        digest = hashlib.sha256("".join(digests).encode()).hexdigest()
        base = replace(base, base=source.path, weights_sha256=digest)
    chat_template_kwargs = source.chat_template_kwargs or None
    base = replace(base, base_files=base_files(base.base), chat_template_kwargs=chat_template_kwargs)
    _require_usable_tokenizer(base)
    require_whole(base)
    return base


def placed(base: PolicyRecord, folder: Path) -> PolicyRecord:
    """Copy M0's tokenizer, chat template and configuration to a folder, and link its weights there."""
    with atomic_folder(folder) as draft:
        draft.mkdir()
        for file in found(base.base, BASE_FILES):
            copy = draft / file.relative_to(base.base)
            copy.parent.mkdir(exist_ok=True)
            shutil.copyfile(file, copy)
        for file in found(base.base, WEIGHT_FILES):
            (draft / file.name).symlink_to(_target(file, folder))
    return replace(base, base=str(folder))


def link_weights(source: ModelSource, folder: Path) -> None:
    """Let M0's folder link to the weights of a local model that has moved."""
    if not isinstance(source, LocalModel):
        return
    for file in found(source.path, WEIGHT_FILES):
        link = folder / file.name
        target = _target(file, folder)
        if link.is_symlink() and str(link.readlink()) != target:
            link.unlink()
            link.symlink_to(target)


def _target(file: Path, folder: Path) -> str:
    """Return the target of a link in a folder: relative if both are in the working directory, which may be moved."""
    here, target, place = (os.path.realpath(path) for path in (".", file, folder))
    if Path(target).is_relative_to(here) and Path(place).is_relative_to(here):
        return os.path.relpath(target, place)
    return target


def make_base(name: str, source: EmbeddedModel, folder: Path) -> PolicyRecord:
    with atomic_folder(folder) as draft:
        draft.mkdir()
        copy_embedded(draft)
    return PolicyRecord(
        policy_id=f"{name}/base",
        model=name,
        regime="base",
        base=str(folder),
        weights_sha256=sha256(folder / "model.safetensors"),
        base_files=base_files(folder),
        settings=source.params(without={"settings"}),
    )


def _require_usable_tokenizer(base: PolicyRecord) -> None:
    """Raise a ValueError if M0's tokenizer cannot be read, or a plain prompt by it has mistakes."""
    tokenizer = load_tokenizer(base)
    messages = [{"role": "user", "content": "2 + 2"}]
    try:
        require_finite(tokenizer, messages)
        conversation_ids(tokenizer, messages)
    except ChatTemplateError:  # it may need a system message; rendering the prompts reports it
        return
    except ValueError as error:
        raise ValueError(f"{base.base}: {error}") from None


def _safetensors(folder: str, name: str) -> list[Path]:
    shards = found(folder, WEIGHT_FILES)
    if not shards:
        raise ValueError(f"{name}: no *.safetensors in it; convert the model with save_pretrained first")
    return shards
