"""A configuration file as it is written, before anything in it has a meaning: UTF-8, YAML, no key given twice.

A YAML reader lets the last of two equal keys win without a word, so a second `seeds:` further down is another
experiment. The workflow checks every file that Snakemake has read as configuration; files may repeat each other, which
is how they are merged.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

MERGE = "tag:yaml.org,2002:merge"  # of `<<`, whose keys may be given again: that is what it is for


class ConfigError(ValueError):
    """A mistake in the configuration, already worded for the person at the keyboard: file, key and fix."""


def read_file(path: str | Path) -> dict[str, Any]:
    """The keys and values of a YAML file.

    Raises:
        ConfigError: it cannot be read, is not UTF-8, not YAML, or no mapping; or one line per key given twice.
    """
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        repeated = [f"{path}: {mistake}" for mistake in _repeated_keys(root)]
        values = yaml.safe_load(text)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}): correct the path") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 ({error.reason} at byte {error.start}): save it as UTF-8") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: cannot be read as YAML: {' '.join(str(error).split())}") from None
    except ValueError as error:  # a date such as 2026-02-30
        raise ConfigError(f"{path}: cannot be read as YAML: {error}") from None
    except RecursionError:
        raise ConfigError(f"{path}: cannot be read as YAML: nested too deeply") from None
    if repeated:
        raise ConfigError("\n".join(repeated))
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: expected a mapping of keys at the top level")
    return values


def _repeated_keys(node: yaml.Node | None, path: str = "", seen: set[int] | None = None) -> Iterator[str]:
    """What is wrong with the keys of a node and all below it; what aliases name is looked at once."""
    seen = set() if seen is None else seen
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for number, child in enumerate(node.value):
            yield from _repeated_keys(child, f"{path}.{number}", seen)
    if not isinstance(node, yaml.MappingNode):
        return
    lines: dict[tuple[str, str], int] = {}
    for key, child in node.value:
        name = f"{path}.{key.value}" if path else str(key.value)
        if isinstance(key, yaml.ScalarNode) and key.tag != MERGE:
            line, same = key.start_mark.line + 1, (key.tag, key.value)
            if same in lines:
                yield f"{name}: given twice, in lines {lines[same]} and {line}, and the last would win: drop one"
            lines[same] = line
        yield from _repeated_keys(child, name, seen)
