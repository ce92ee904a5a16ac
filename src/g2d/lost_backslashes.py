r"""Lost backslashes of LaTeX: between quotes, JSON and YAML read `\frac` as a form feed and `rac`."""

from __future__ import annotations

import re

# What escapes stand for: their letter, and the name of the character.
ESCAPES = {
    "\a": ("a", "bell"),
    "\b": ("b", "backspace"),
    "\t": ("t", "tab"),
    "\n": ("n", "line break"),
    "\v": ("v", "vertical tab"),
    "\f": ("f", "form feed"),
    "\r": ("r", "carriage return"),
    "\x1b": ("e", "escape character"),
}
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]|\r(?=[^\r\n])")
_COMMAND = re.compile(r"[\a\b\v\f](?=[a-z])|\r(?=ight|ho\b|angle|ceil|floor)")
_LAYOUT = re.compile(
    r"\n(?=(?:eq|u|abla|otin|ewline)(?![A-Za-z]))|\t(?=ext(?:bf|it|rm|tt)?\{|imes|heta|frac|riangle|ilde|herefore)"
)


def require_backslashes(text: str, *, by_model: bool = False) -> None:
    """Raise a ValueError for a control character, with the LaTeX command that was probably meant.

    Tabs and line breaks are allowed. A text by a model may have any control character that begins no command.
    """
    found = (_COMMAND if by_model else _CONTROL).search(text)
    if found is None:
        return
    raise ValueError(_words(text, found))


def doubtful_layout(text: str) -> str | None:
    r"""Return a warning if a line break or tab may have been a LaTeX command, as `\nu` or `\times`; else None.

    A problem of the published MATH has a tab before `extbf`, so this is no mistake.
    """
    found = _LAYOUT.search(text)
    return None if found is None else _words(text, found)


def _words(text: str, found: re.Match[str]) -> str:
    letter, name = ESCAPES.get(found[0], ("", f"control character U+{ord(found[0]):04X}"))
    article = "an" if name.startswith("e") else "a"
    rest = re.split("[^A-Za-z]", text[found.end() :], maxsplit=1)[0]
    if not letter or not rest:
        return f"{article} {name} in it: remove it"
    command = rf"\{letter}{rest}"
    return rf"{article} {name} before {rest!r}, perhaps {command}: between quotes of JSON or YAML, write \{command}"
