"""Read a configuration file strictly: UTF-8, YAML, no repeated keys, no ambiguous numbers.

YAML readers silently keep the last of two equal keys, and read 010 as 8 and 1:30 as 90 (YAML 1.1).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from g2d.settings import ConfigError, refuse

INTEGER = "tag:yaml.org,2002:int"
FLOAT = "tag:yaml.org,2002:float"
LARGEST_FILE = 100_000  # values
MERGE = "tag:yaml.org,2002:merge"  # the key `<<`; it may repeat keys


def read_file(path: str | Path) -> dict[str, Any]:
    """Return the keys and values of a YAML file.

    Raises:
        ConfigError: one line per mistake.
    """
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        misread = [f"{path}: {mistake}" for mistake in _misread(root)]
        values = yaml.safe_load(text)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}): correct the path") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 ({error.reason} at byte {error.start}): save it as UTF-8") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: a date such as 2026-02-30
        why = "nested too deeply" if isinstance(error, RecursionError) else " ".join(str(error).split())
        raise ConfigError(f"{path}: cannot be read as YAML: {why}") from None
    refuse(misread)
    n = _count(root, {})
    if n > LARGEST_FILE:
        raise ConfigError(f"{path}: its aliases (*NAME) stand for {n:,} values: write out those that are meant")
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: expected a mapping of keys at the top level")
    return values


def _misread(
    node: yaml.Node | None, path: str = "", seen: set[int] | None = None, above: frozenset[int] = frozenset()
) -> Iterator[str]:
    """Yield values in a node that YAML reads differently than they look; aliases are checked once."""
    if seen is None:
        seen = set()
    if id(node) in above:
        yield f"{path}: an alias of a node that contains it: write the values out"
    above |= {id(node)}
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, yaml.ScalarNode):
        meaning = _other_number(node)
        if meaning is not None:
            line = node.start_mark.line + 1
            yield f"{path}: {node.value}, in line {line}, is {meaning} to YAML: write which one is meant"
    if isinstance(node, yaml.SequenceNode):
        for number, child in enumerate(node.value):
            yield from _misread(child, f"{path}.{number}" if path else str(number), seen, above)
    if not isinstance(node, yaml.MappingNode):
        return
    lines: dict[tuple[str, str], int] = {}
    for key, child in node.value:
        name = f"{path}.{key.value}" if path else str(key.value)
        if isinstance(key, yaml.ScalarNode) and key.tag != MERGE:
            line = key.start_mark.line + 1
            same = (key.tag, key.value)
            if same in lines:
                yield f"{name}: given twice, in lines {lines[same]} and {line}, and the last would win: drop one"
            lines[same] = line
        yield from _misread(key, name, seen, above)
        yield from _misread(child, name, seen, above)


def _count(node: yaml.Node | None, counted: dict[int, int]) -> int:
    """Count the values in a node as if each alias were written out."""
    if id(node) not in counted:
        n = 1
        if isinstance(node, yaml.SequenceNode):
            n += sum(_count(child, counted) for child in node.value)
        elif isinstance(node, yaml.MappingNode):
            n += sum(_count(child, counted) for _, child in node.value)
        counted[id(node)] = n
    return counted[id(node)]


def _other_number(node: yaml.ScalarNode) -> int | float | None:
    if node.style is not None or node.tag not in (INTEGER, FLOAT):
        return None
    octal = re.fullmatch(r"[-+]?0[0-7_]+", node.value)
    if not octal and ":" not in node.value:
        return None
    meaning: int | float = yaml.safe_load(node.value)
    if octal and meaning == int(node.value):
        return None
    return meaning


NEEDED = ("models", "pool", "benchmarks")
COMMAND = re.compile(r"^#.*--configfile +(.+?) *$", re.M)


def require_whole(values: Mapping[str, Any], paths: Sequence[str | Path]) -> None:
    """Check that files are a whole configuration together, not only an overlay.

    The error quotes the command at the top of the last file.
    """
    missing = [name for name in NEEDED if name not in values]
    if not paths or len(missing) < 2 or not all(isinstance(name, str) for name in values):
        return
    last = Path(paths[-1])
    command = COMMAND.search(last.read_text(encoding="utf-8"))
    given = command[1] if command else f"YOURS.yaml {last}"
    raise ConfigError(
        f"{last}: changes a configuration (it has no {', '.join(missing)}), which must come before it: --configfile "
        f"{given}"
    )


def read_files(paths: Iterable[str | Path], several: str = "name only one") -> dict[str, dict[str, Any]]:
    """Return the values of each file: a whole configuration, and files that are merged over it.

    Args:
        several: what to do about a second whole configuration.

    Raises:
        ConfigError: a file cannot be read, or a later file is a whole configuration.
    """
    sources: dict[str, dict[str, Any]] = {}
    lines: list[str] = []
    for path in paths:
        try:
            sources[str(path)] = read_file(path)
        except ConfigError as error:
            lines.append(str(error))
    refuse(lines)
    whole = [path for path, values in sources.items() if set(NEEDED) <= set(values)]
    if len(whole) > 1:
        raise ConfigError(
            f"{whole[0]} and {whole[-1]} are both whole configurations, which Snakemake would merge: {several}"
        )
    first = next(iter(sources), None)
    if whole and whole[0] != first:
        raise ConfigError(f"{first}: comes before {whole[0]}, which would override it: name it after that file")
    return sources


def merged(below: Any, above: Any) -> Any:
    """Merge values as Snakemake does: mappings key by key, otherwise the later value wins."""
    if not isinstance(below, Mapping) or not isinstance(above, Mapping):
        return above
    values = dict(below)
    for name, value in above.items():
        values[name] = merged(below.get(name), value)
    return values


def source_of(mistake: str, sources: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the last source with the key of a mistake; for a section or an unknown key, all sources."""
    key = re.split(r"[\s=]", mistake)[0].rstrip(":")
    having: dict[str, Any] = {}
    for name, values in sources.items():
        found = _found(values, key)
        if found:
            having[name] = found[0]
    if not having:
        return ", ".join(sources)
    last = list(having)[-1]
    if isinstance(having[last], Mapping):
        return ", ".join(having)
    return last


def _found(values: Any, key: str) -> list[Any]:
    """Return a list with the value of a dotted key, [] if it is missing; names may contain dots."""
    if not key or not isinstance(values, Mapping):
        return [values]
    for name, value in values.items():
        if f"{key}.".startswith(f"{name}."):
            found = _found(value, key[len(str(name)) + 1 :])
            if found:
                return found
    return []
