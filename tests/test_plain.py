"""Text of others on a terminal or a page has no control characters and no invisible ones."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import jinja2
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from g2d.checks.load import load
from g2d.cli import main
from g2d.markdown import code, fenced, literal
from g2d.plain import counted, is_hidden, plain, say, visible, without_folders
from g2d.rewards import registry
from g2d.rewards.registry import require_numbers
from g2d.rewards.reward import Reward
from g2d.settings import ConfigError
from tests.configs import MINIMAL
from tests.jobs.test_stage import run
from tests.rewards.test_judging import Odd

REPOSITORY = Path(__file__).parents[1]
HOSTILE = "\x1b[31mred\x1b]0;title\x07\x9b2J\u202eesrever\r\x00"
SEEN = "red 2J esrever"
PRINTING = ("print", "sys.stdout.write", "sys.stderr.write")


def hidden(text: str) -> set[str]:
    return {c for c in text if is_hidden(c) and c not in "\n\t"}


def test_what_is_left_of_hostile_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert plain(HOSTILE) == SEEN
    assert plain(f"a  b\n\tc {HOSTILE}") == f"a b c {SEEN}"
    assert plain("a  b\n\tc", lines=True) == "a  b\n\tc"
    assert plain("ä € 漢 \\boxed{5}", lines=True) == "ä € 漢 \\boxed{5}"
    say(f"  {HOSTILE}")
    assert capsys.readouterr().out.rstrip() == f"  {SEEN}"


@given(st.text())
def test_plain_text_is_one_printable_line(text: str) -> None:
    shown = plain(text)
    assert shown == plain(shown)
    assert all(c == " " or c.isprintable() for c in shown), ascii(shown)


def test_everything_that_is_printed_passes_through_one_function() -> None:
    calls = []
    for file in [*(REPOSITORY / "src/g2d").rglob("*.py"), *(REPOSITORY / "workflow/scripts").glob("*.py")]:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in PRINTING:
                calls.append((file.name, ast.unparse(node.args[0]) if node.args else ""))
    allowed = {("plain.py", "plain(text, lines=True)"), ("command.py", "CLEAR")}
    assert set(calls) == allowed
    files = [REPOSITORY / "workflow/Snakefile", *(REPOSITORY / "workflow").rglob("*.smk")]
    rules = "".join(file.read_text() for file in files)
    assert not re.search(r"Refusal\(str\(error|f?\"\{error\}\\n", rules)


def test_a_command_that_fails_and_a_configuration_that_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", f"{tmp_path}/{HOSTILE.replace(chr(0), '')}"]) == 2
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump(MINIMAL | {HOSTILE: 1, "seeds": [HOSTILE]}))
    assert main(["config", "check", str(config)]) == 1
    output = capsys.readouterr().err
    assert SEEN in output
    assert not hidden(output)


def test_a_job_that_fails(tmp_path: Path) -> None:
    output = run(tmp_path, f"raise ValueError({HOSTILE!r})").stderr
    assert output.startswith(f"train_dpo: {SEEN}")
    assert not hidden(output)


def test_a_reward_without_a_number(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setitem(registry.REWARDS, "odd", Reward(HOSTILE, 1, Odd, lambda *_: [], lambda own: HOSTILE))
    require_numbers({"judged": 1, "error": 1}, HOSTILE)
    assert SEEN in caplog.text
    assert not hidden(caplog.text)
    assert registry.words_of(Odd()) == SEEN


def test_titles_and_sentences_in_pages_and_markdown() -> None:
    allowed = "red\u202eesrever"  # a configuration has no control characters
    config = load(MINIMAL | {"title": allowed, "demonstration": allowed})
    assert (config.title, config.demonstration) == ("red esrever", "red esrever")
    template = jinja2.Environment(autoescape=True, finalize=visible).from_string("<b>{{ text }}</b>{{ n }}")
    assert template.render(text=f"<i>{HOSTILE}", n=1) == f"<b>&lt;i&gt;{plain(HOSTILE, lines=True)}</b>1"
    for text in (literal(HOSTILE), code(HOSTILE), fenced(HOSTILE)):
        assert "esrever" in text
        assert not hidden(text)


def test_a_file_whose_name_a_terminal_would_obey_is_refused() -> None:
    """Snakemake prints the names of input files as they are."""
    name = "\x1b[31mpool.jsonl"
    with pytest.raises(ConfigError, match=r"pool.path: an escape character in it: remove it"):
        load(MINIMAL | {"pool": {"source": "local", "path": name}})


def test_folders_of_this_machine_are_not_published() -> None:
    settings = {"models": {"mine": {"path": "/home/me/models/mine"}}, "pool": {"path": "data/pool.jsonl"}, "seeds": [1]}
    settings["rewards"] = {"own": {"reward": "python", "file": "/home/me/rewards.py"}}
    assert without_folders(settings) == {
        "models": {"mine": {"path": "path/to/mine"}},
        "rewards": {"own": {"reward": "python", "file": "path/to/rewards.py"}},
        "pool": {"path": "data/pool.jsonl"},
        "seeds": [1],
    }


def test_one_thing_is_singular() -> None:
    assert [counted(n, "job", "run") for n in (0, 1, 2)] == ["0 jobs run", "1 job runs", "2 jobs run"]
    assert counted(1, "job") == "1 job"
