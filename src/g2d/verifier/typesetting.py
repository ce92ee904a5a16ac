r"""Typesetting around an answer (colour, weight, size) and words that introduce it (`\approx`, "Answer:")."""

from __future__ import annotations

import re

_SIZES = (
    "tiny|scriptsize|footnotesize|small|normalsize|large|Large|LARGE|huge|Huge|displaystyle|textstyle|scriptstyle|"
    "limits|[bB]igg?[lrm]?"
)
_TYPESETTING = (
    # `\textcolor{blue}{6}` and `{\color{blue} 6}`
    (re.compile(r"\\(?:textcolor|colorbox|color)\s*(?:\[[^\[\]]*\]\s*)?\{[^{}]*\}\s*"), ""),
    # A group remains: `\underline{x+1}` is `{x+1}`.
    (re.compile(r"\\(?:underline|uline|boldsymbol|pmb|bm)\s*(?=\{)"), ""),
    (re.compile(rf"\\(?:{_SIZES})(?![A-Za-z])\s*"), ""),
    # Letters stay bold, as `\mathbf{R}` and `\textbf{no}`.
    (re.compile(r"\\(?:textbf|mathbf)\s*(?=\{[^{}A-Za-z]*\})"), ""),
    (re.compile(r"\\(?:nicefrac|sfrac|cfrac)(?![A-Za-z])"), r"\\frac"),
    (re.compile(r"\\varnothing(?![A-Za-z])|∅"), r"\\emptyset "),
    (re.compile(r"\{(?P<n>[^{}\\]*)\\choose(?![A-Za-z])(?P<k>[^{}\\]*)\}"), r"\\binom{\g<n>}{\g<k>}"),
    (re.compile(r"\A(?P<n>[^{}\\]*)\\choose(?![A-Za-z])(?P<k>[^{}\\]*)\Z"), r"\\binom{\g<n>}{\g<k>}"),
)
_MARKDOWN = re.compile(r"\*\*(?P<answer>[^*]+)\*\*")
_INTRODUCTION = re.compile(
    r"(?:\\(?:approx|simeq|therefore|Rightarrow|implies)(?![A-Za-z])|∴|≈|⇒|=(?!=)|"
    r"\\(?:text|textbf|textrm|mbox)\s*\{\s*(?:the\s+)?(?:final\s+)?answer(?:\s+is)?\s*:?\s*\}\s*:?|"
    r"(?:the\s+)?(?:final\s+)?answer(?:\s+is\b\s*:?|\s*:))\s*",
    re.IGNORECASE,
)


def without_typesetting(text: str) -> str:
    r"""Remove colour, weight, size and introductions.

    >>> without_typesetting(r"\approx \textcolor{blue}{\nicefrac{1}{2}}")
    '{\\frac{1}{2}}'
    """
    text = text.strip()
    markdown = _MARKDOWN.fullmatch(text)
    if markdown:
        text = markdown["answer"]
    if "\\" in text or "∅" in text:
        for pattern, replacement in _TYPESETTING:
            text = pattern.sub(replacement, text)
    introduction = _INTRODUCTION.match(text)
    if introduction and introduction.end() < len(text):
        text = text[introduction.end() :]
    return text
