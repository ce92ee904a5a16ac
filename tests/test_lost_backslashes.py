r"""Texts that JSON and YAML read otherwise than they were meant: `\frac` in quotes is a form feed and `rac`."""

from __future__ import annotations

import json
import re

import pytest
import yaml

from g2d.lost_backslashes import doubtful_layout, require_backslashes

COMMANDS = [
    *(r"\frac{1}{3}", r"\forall x", r"\boxed{}", r"\beta", r"\binom{5}{2}", r"\right)", r"\rho", r"\rangle"),
]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("by_model", [False, True])
def test_a_command_that_json_took_apart_is_named(command: str, by_model: bool) -> None:
    text = json.loads(f'"so ${command}$"')
    assert command not in text
    (name,) = re.findall(r"\\[a-z]+", command)
    with pytest.raises(ValueError, match=re.escape(rf"perhaps {name}: between quotes of JSON or YAML, write \{name}")):
        require_backslashes(text, by_model=by_model)
    require_backslashes(json.loads(json.dumps(f"so ${command}$")), by_model=by_model)


@pytest.mark.parametrize("command", [r"\vec{a}", r"\alpha", r"\exp"])
def test_a_command_that_yaml_took_apart_is_named(command: str) -> None:
    with pytest.raises(ValueError, match="perhaps"):
        require_backslashes(yaml.safe_load(f'"so {command}"'))
    require_backslashes(yaml.safe_load(f"so {command}"))


@pytest.mark.parametrize("text", ["a\tb", "\tfor (;;)\n\tdraw(t);", "one\r\ntwo\r", "x\u0085y", "\\frac{1}{3} é 中"])
def test_layout_is_not_refused(text: str) -> None:
    require_backslashes(text)


def test_a_model_may_write_any_character() -> None:
    text = "\x00 \x1b[0m \f \x1f\rten"
    require_backslashes(text, by_model=True)
    with pytest.raises(ValueError, match=r"a control character U\+0000 in it: remove it"):
        require_backslashes(text)


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("x \neq 5", r"\neq"),
        ("\nu + 1", r"\nu"),
        ("$\nabla f$", r"\nabla"),
        ("3 \times 5", r"\times"),
        ("3\text{ cm}", r"\text"),
        ("\textbf{(C)} 96", r"\textbf"),
        ("\theta", r"\theta"),
        ("a\ten\textile", None),
        ("x \\neq 5", None),
        ("one\nunder", None),
        ("one\n u", None),
    ],
)
def test_a_line_break_or_tab_may_have_been_a_command(text: str, command: str | None) -> None:
    warning = doubtful_layout(text)
    if command is None:
        assert warning is None
    else:
        assert f"perhaps {command}: " in str(warning)
