"""Configuration files as they are written, and what a careless hand makes of a valid one: a line, no traceback."""

from __future__ import annotations

import copy
import os
import re
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
    files = [f"{CONFIG}/config.yaml", f"{CONFIG}/overlays/regimes.yaml", f"{CONFIG}/overlays/controls.yaml"]
    assert main(["config", "check", *files]) == 0
    expected: dict[str, Any] = {}
    for file in files:
        update_config(expected, yaml.safe_load(Path(file).read_text()))
    assert reduce(merged, read_files(files).values()) == expected
    mine = str(tmp_path / "my.yaml")
    Path(mine).write_text("seeds: 3\nwarmup: {horizon: 1}\nmodels: {demo: {source: embedded, settings: 3}}\n")
    assert main(["config", "check", *files, mine]) == 1
    named = re.findall("^(.*?): (.*?): ", capsys.readouterr().err, re.M)
    assert set(named) == {(mine, "seeds"), (mine, "models.demo.settings"), (f"{files[0]}, {mine}", "warmup")}
    assert main(["config", "check", files[1], files[0]]) == 1


def test_a_key_given_twice_is_named_with_both_lines_at_every_depth(tmp_path: Path) -> None:
    file = tmp_path / "my.yaml"
    file.write_text(DUPLICATES)
    with pytest.raises(ConfigError) as error:
        read(file)
    would_win = "and the last would win: drop one"
    assert str(error.value).splitlines() == [
        f"{file}: warmup.steps: given twice, in lines 3 and 4, {would_win}",
        f"{file}: models.demo.settings.harvest.batch_size: given twice, in lines 6 and 6, {would_win}",
        f"{file}: list.0.a: given twice, in lines 8 and 8, {would_win}",
        f"{file}: seeds: given twice, in lines 1 and 13, {would_win}",
    ]


def test_a_number_that_yaml_reads_as_another_is_named_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "my.yaml"
    file.write_text("seeds: [0, 010, 07, '010', 0x10]\nmodels:\n  0123: {steps: 1:30}\nrate: 1:30.5\ntitle: '1:30'\n")
    with pytest.raises(ConfigError) as error:
        read(file)
    assert str(error.value).splitlines() == [
        f"{file}: seeds.1: 010, in line 1, is 8 to YAML: write which one is meant",
        f"{file}: models.0123: 0123, in line 3, is 83 to YAML: write which one is meant",
        f"{file}: models.0123.steps: 1:30, in line 3, is 90 to YAML: write which one is meant",
        f"{file}: rate: 1:30.5, in line 4, is 90.5 to YAML: write which one is meant",
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
        assert str(files[0]) in str(refused.value)
        assert str(files[-1]) in str(refused.value)


def test_several_files_may_repeat_each_other_and_merge_keys_are_legal(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("base: &base {n: 1}\nother: {<<: *base, n: 2}\n")
    (tmp_path / "b.yaml").write_text('{"base": {"n": 3}}')
    files = read_files([tmp_path / "a.yaml", tmp_path / "b.yaml"])
    assert reduce(merged, files.values()) == {"base": {"n": 3}, "other": {"n": 2}}


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
    errors = capsys.readouterr().err
    assert f"{file}: {message}" in errors
    for line in errors.splitlines():
        assert line.startswith(f"{file}: ")


def test_missing_files_of_a_configuration_are_reported_with_its_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    named = {"pool": {"source": "local", "path": "absent.jsonl"}, "models": {"mine": {"source": "local", "path": "m"}}}
    file = tmp_path / "my.yaml"
    file.write_text(yaml.safe_dump(MINIMAL | named))
    assert main(["config", "check", str(file)]) == 1
    pool, model = capsys.readouterr().err.splitlines()
    assert pool.startswith(f"{file}: pool.path: absent.jsonl ")
    assert model.startswith(f"{file}: models.mine.path: m/config.json ")


def test_a_terminal_that_is_not_utf_8_shows_question_marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = TextIOWrapper(BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.stdout", terminal)
    file = tmp_path / "\u00dcbung.yaml"
    file.write_text((CONFIG / "config.yaml").read_text())
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


WRONG_NUMBERS = [float("inf"), float("-inf"), float("nan"), True, -1, 10**20, 3e20, "hot", [1], {"a": 1}, "\ud800"]


def broken(path: tuple[Any, ...]) -> list[Any]:
    """Values that nobody can mean at a place."""
    value = at(FULL, path)
    if isinstance(value, bool) or value is None:
        return [[[1]], {"a": {}}]
    if value == {} and path[-1] == "settings":
        return [5]
    if isinstance(value, dict):
        return [value | {"no-such-key": 1}, value | {7: 1}, [1], 5, "text"]
    if value == [] or path[-1] == "window":
        return [5, {"a": 1}]
    if isinstance(value, list):
        return [value + value[:1]]
    if isinstance(value, (int, float)):
        return WRONG_NUMBERS
    return [True, -3, [["a"]], {"a": 1}, "a\0b"]


BROKEN = [(path, value) for path in places(FULL) if path for value in broken(path)]


@settings(max_examples=150, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(BROKEN))
def test_a_broken_value_is_named_with_its_key(place: tuple[tuple[Any, ...], Any]) -> None:
    path, value = place
    values = copy.deepcopy(FULL)
    at(values, path[:-1])[path[-1]] = value
    with pytest.raises(ConfigError) as error:
        load(values, "my.yaml")
    message = str(error.value)
    assert str(path[-1]) in message or str(path[0]) in message
    for line in message.splitlines():
        assert line.startswith("my.yaml: ")
        assert len(line) < 400


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
