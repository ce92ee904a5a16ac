"""Configuration files as they are written, and what a careless hand makes of a valid one: a line, no traceback."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from functools import reduce
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from snakemake.utils import update_config

from g2d.checks.load import load, read
from g2d.cli import main
from g2d.config.file import merged, read_file, read_files
from g2d.config.sections import Config
from g2d.settings import ConfigError
from tests.configs import MINIMAL

CONFIG = Path(__file__).parents[2] / "config"

DUPLICATES = """\
seeds: [0]
warmup: &warmup
  steps: [0, 1]
  steps: [0, 2]
models:
  demo: {source: embedded, settings: {harvest: {batch_size: 1, batch_size: 2}}}
list:
  - {a: 1, a: 2}
more:
  <<: *warmup
  <<: {x: 1}
  steps: [5]
seeds: [1]
"""


def test_a_configuration_may_come_from_a_pipe() -> None:
    readable, writable = os.pipe()
    with open(writable, "wb") as file:
        file.write((CONFIG / "config.yaml").read_bytes())
    assert main(["config", "check", f"/dev/fd/{readable}"]) == 0
    os.close(readable)


def test_files_are_merged_as_by_snakemake_and_a_mistake_names_its_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [str(CONFIG / name) for name in ("config.yaml", "overlays/regimes.yaml", "overlays/controls.yaml")]
    assert main(["config", "check", *files]) == 0
    expected: dict[str, Any] = {}
    for file in files:
        update_config(expected, yaml.safe_load(Path(file).read_text()))
    assert reduce(merged, read_files(files).values()) == expected
    mine = str(tmp_path / "my.yaml")
    Path(mine).write_text("seeds: 3\nwarmup: {horizon: 1}\nmodels: {demo: {source: embedded, settings: 3}}\n")
    assert main(["config", "check", *files, mine]) == 1
    named = {line.split(": ")[1]: line.split(": ")[0] for line in capsys.readouterr().err.splitlines()}
    assert named == {"seeds": mine, "models.demo.settings": mine, "warmup": f"{files[0]}, {mine}"}
    assert main(["config", "check", files[1], files[0]]) == 1


def test_a_key_given_twice_is_named_with_both_lines_at_every_depth(tmp_path: Path) -> None:
    file = tmp_path / "my.yaml"
    file.write_text(DUPLICATES)
    with pytest.raises(ConfigError) as error:
        read(file)
    assert str(error.value).splitlines() == [
        f"{file}: {key}: given twice, in lines {first} and {second}, and the last would win: drop one"
        for key, first, second in (
            ("warmup.steps", 3, 4),
            ("models.demo.settings.harvest.batch_size", 6, 6),
            ("list.0.a", 8, 8),
            ("seeds", 1, 13),
        )
    ]


def test_a_number_that_yaml_reads_as_another_is_named_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "my.yaml"
    file.write_text("seeds: [0, 010, 07, '010', 0x10]\nmodels:\n  0123: {steps: 1:30}\nrate: 1:30.5\ntitle: '1:30'\n")
    with pytest.raises(ConfigError) as error:
        read(file)
    assert str(error.value).splitlines() == [
        f"{file}: {key}: {text}, in line {line}, is {meaning} to YAML: write which one is meant"
        for key, text, line, meaning in (
            ("seeds.1", "010", 1, 8),
            ("models.0123", "0123", 3, 83),
            ("models.0123.steps", "1:30", 3, 90),
            ("rate", "1:30.5", 4, 90.5),
        )
    ]


def test_a_second_configuration_and_an_overlay_before_its_configuration_are_refused(tmp_path: Path) -> None:
    overlay, other = tmp_path / "overlay.yaml", tmp_path / "other.yaml"
    overlay.write_text("seeds: [0]\n")
    other.write_text((CONFIG / "small.yaml").read_text())
    read_files([CONFIG / "config.yaml", overlay])
    read_files([overlay])
    for files in ([CONFIG / "config.yaml", overlay, other], [overlay, CONFIG / "config.yaml"]):
        with pytest.raises(ConfigError, match=r"would (merge|override)") as refused:
            read_files(files)
        assert all(str(file) in str(refused.value) for file in (files[0], files[-1]))


def test_several_files_may_repeat_each_other_and_merge_keys_are_legal(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("base: &base {n: 1}\nother: {<<: *base, n: 2}\n")
    (tmp_path / "b.yaml").write_text('{"base": {"n": 3}}')
    read_files([tmp_path / "a.yaml", tmp_path / "b.yaml"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("title: caf\u00e9".encode("latin-1"), "not UTF-8 (unexpected end of data at byte 10): save it as UTF-8"),
        ("title: x".encode("utf-16"), "not UTF-8 (invalid start byte at byte 0): save it as UTF-8"),
        ("title: x".encode("utf-16-le"), "cannot be read as YAML: unacceptable character"),
        (b"models: [", "cannot be read as YAML: while parsing a flow node"),
        (b"title: 2026-02-30", "cannot be read as YAML: day is out of range for month"),
        (b"[" * 1000, "cannot be read as YAML: nested too deeply"),
        (b"- a", "expected a mapping of keys at the top level"),
        (b"", "expected a mapping of keys at the top level"),
        (b"1: 2", "1: keys should be strings"),
    ],
)
def test_a_file_that_is_no_configuration_is_one_line_with_its_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, message: str
) -> None:
    file = tmp_path / "my.yaml"
    file.write_bytes(content)
    assert main(["config", "check", str(file)]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert any(line.startswith(f"{file}: {message}") for line in lines), lines
    assert all(line.startswith(f"{file}: ") for line in lines)


def test_missing_files_of_a_configuration_are_reported_with_its_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    named = {"pool": {"source": "local", "path": "absent.jsonl"}, "models": {"mine": {"source": "local", "path": "m"}}}
    (file := tmp_path / "my.yaml").write_text(yaml.safe_dump(MINIMAL | named))
    assert main(["config", "check", str(file)]) == 1
    lines = capsys.readouterr().err.splitlines()
    files = ("pool.path: absent.jsonl", "models.mine.path: m/config.json")
    assert [line.startswith(f"{file}: {name} ") for line, name in zip(lines, files, strict=True)] == [True, True]


def test_a_terminal_that_is_not_utf_8_shows_question_marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", terminal := TextIOWrapper(BytesIO(), encoding="ascii"))
    (file := tmp_path / "\u00dcbung.yaml").write_text((CONFIG / "config.yaml").read_text())
    assert main(["config", "check", str(file)]) == 0
    assert terminal.buffer.getvalue().endswith(b"?bung.yaml: valid\n")


def test_a_byte_order_mark_is_tolerated(tmp_path: Path) -> None:
    (tmp_path / "my.yaml").write_text((CONFIG / "config.yaml").read_text(), encoding="utf-8-sig")
    assert read(tmp_path / "my.yaml") == read(CONFIG / "config.yaml")


# ------------------------------------------------------------------------------------------ in careless hands

VALID: dict[str, Any] = yaml.safe_load((CONFIG / "config.yaml").read_text())
VALID["warmup"] |= {"group_sizes": [2, 4], "auto": {"every": 5, "prompts": 50, "patience": 2}}
VALID["calibration"] |= {"levels": [1, 2], "factorial_temperatures": [0.8, 1.0]}
VALID["evaluation"]["sampled"] = {"n": 2}
VALID["models"]["demo"]["settings"] = {"harvest": {"temperature": 1.2}, "warmup": {"beta": 0.1}}
VALID["ablations"]["longer"] = {"steps": [50], "warmup": {"max_completion_length": 30}, "policies": ["dpo", "grpo"]}
FULL = load(VALID).model_dump(mode="json")  # every key with a value


def places(values: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths to all mappings, lists, numbers and texts of a configuration."""
    yield path
    if isinstance(values, dict):
        for name, value in values.items():
            yield from places(value, (*path, name))


def at(values: Any, path: tuple[Any, ...]) -> Any:
    for part in path:
        values = values[part]
    return values


PLACES = [path for path in places(FULL) if path]
WRONG_NUMBERS = [float("inf"), float("-inf"), float("nan"), True, -1, 10**20, 3e20, "hot", [1], {"a": 1}, "\ud800"]


def broken(path: tuple[Any, ...]) -> list[Any]:
    """Values that nobody can mean at a place."""
    value = at(FULL, path)
    if isinstance(value, bool) or value is None:
        return [[[1]], {"a": {}}]
    if isinstance(value, dict):
        return [value | {"no-such-key": 1}, value | {7: 1}, [1], 5, "text"] if value or path[-1] != "settings" else [5]
    if isinstance(value, list):
        return [value + value[:1]] if value and path[-1] not in ("window",) else [5, {"a": 1}]
    if isinstance(value, (int, float)):
        return WRONG_NUMBERS
    return [True, -3, [["a"]], {"a": 1}, "a\0b"]


@settings(max_examples=150, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from([(path, number) for path in PLACES for number in range(len(broken(path)))]))
def test_a_broken_value_is_named_with_its_key(place: tuple[tuple[Any, ...], int]) -> None:
    path, number = place
    values = copy.deepcopy(FULL)
    at(values, path[:-1])[path[-1]] = broken(path)[number]
    with pytest.raises(ConfigError) as error:
        load(values, "my.yaml")
    lines = str(error.value).splitlines()
    assert all(line.startswith("my.yaml: ") for line in lines)
    assert any(str(path[-1]) in line or str(path[0]) in line for line in lines), lines
    assert all(len(line) < 400 for line in lines)


def test_the_configuration_that_is_broken_above_is_valid() -> None:
    assert Config.model_validate(FULL).model_dump(mode="json") == FULL


@pytest.mark.parametrize(
    ("text", "key"), [("models: &m\n  demo: *m\n", "models.demo"), ("title: &a [1, *a]\n", "title.1")]
)
def test_an_alias_of_its_own_parent_is_named(tmp_path: Path, text: str, key: str) -> None:
    (tmp_path / "my.yaml").write_text(text)
    with pytest.raises(ConfigError, match=rf"^{tmp_path}/my.yaml: {key}: an alias of a node that contains it"):
        read(tmp_path / "my.yaml")


def test_aliases_that_stand_for_too_many_values_are_refused(tmp_path: Path) -> None:
    """Each of ten levels repeats the one below nine times."""
    file = tmp_path / "my.yaml"
    lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    for level in range(1, 10):
        below = ", ".join([f"*a{level - 1}"] * 9)
        lines.append(f"a{level}: &a{level} [{below}]")
    file.write_text("\n".join(lines))
    with pytest.raises(ConfigError, match=r"my\.yaml: its aliases .* stand for .* values: write out"):
        read_file(file)
