r"""Render text that a model wrote as HTML: mathematics as MathML, everything else escaped.

A completion is hostile: it can contain `<script>`, `\href{javascript:...}` or characters that reverse the line. So the
page only gets escaped text and MathML elements rebuilt from known names. A formula that cannot be converted is shown as
its source.
"""

from __future__ import annotations

import html
import re
from xml.etree.ElementTree import Element

from latex2mathml.converter import convert_to_element
from markupsafe import Markup, escape

from g2d.plain import is_hidden

MAX_CHARACTERS = 8000  # per text; a page has hundreds
MAX_FORMULA = 2000  # characters; longer ones are no formulas but runaway text

_FORMULA = re.compile(
    r"""
    \$\$(?P<double>[^$]+?)\$\$
  | \\\[(?P<bracket>.+?)\\\]
  | \\\((?P<paren>.+?)\\\)
  | (?<![\\$])\$(?P<dollar>(?![\s$])[^$\n]*?(?<![\s\\]))\$(?!\d)  # as in Pandoc: "$5 and $6" are prices
  | (?P<environment>\\begin\{(?P<name>align\*?|aligned|cases|[pbv]?matrix|array|equation\*?)\}.+?\\end\{(?P=name)\})
  | (?P<boxed>\\boxed\s*\{(?:[^{}]++|\{(?:[^{}]++|\{(?:[^{}]++|\{[^{}]*+\})*+\})*+\})*+\})
    """,
    re.VERBOSE | re.DOTALL,
)
_DELIMITED = ("double", "bracket", "paren", "dollar", "environment", "boxed")  # groups of `_FORMULA`
ELEMENTS = frozenset(
    [
        *("math", "mrow", "mstyle", "mpadded", "mphantom", "menclose", "mi", "mn", "mo", "ms", "mtext", "mspace"),
        *("mfrac", "msqrt", "mroot", "msup", "msub", "msubsup", "munder", "mover", "munderover"),
        *("mmultiscripts", "mprescripts", "mtable", "mtr", "mtd"),
    ]
)
ATTRIBUTES = frozenset(  # geometry only: no links, styles, classes or handlers
    [
        *("display", "displaystyle", "scriptlevel", "mathvariant", "notation", "columnalign", "columnspacing"),
        *("rowspacing", "stretchy", "fence", "form", "separator", "symmetric", "largeop", "movablelimits", "accent"),
        *("accentunder", "lspace", "rspace", "width", "height", "depth", "voffset"),
        *("linethickness", "minsize", "maxsize"),
    ]
)
_VALUE = re.compile(r"[\w .%+-]*")
_MACROS = re.compile(r"\\(?:new|renew|provide)command|\\[gex]?def|\\let")  # can expand without end


def render(text: str) -> Markup:
    r"""Draw the formulas in a text: `$..$`, `$$..$$`, `\(..\)`, `\[..\]`, environments and a bare `\boxed{..}`.

    CSS breaks the lines (`white-space: pre-wrap`). Texts above `MAX_CHARACTERS` are cut, with a note.
    """
    shown = text[:MAX_CHARACTERS]
    parts = []
    position = 0
    for match in _FORMULA.finditer(shown):
        latex = next(match[name] for name in _DELIMITED if match[name] is not None)
        formula = mathml(latex, display=bool(match["double"] or match["bracket"]))
        parts.append(plain(shown[position : match.start()]))
        parts.append(plain(match.group()) if formula is None else formula)
        position = match.end()
    parts.append(plain(shown[position:]))
    parts.append(cut(text, MAX_CHARACTERS))
    return Markup().join(parts)


def cut(text: str, characters: int) -> Markup:
    """Return a note on the characters of a text that are left out; empty if it is not cut."""
    rest = len(text) - characters
    if rest <= 0:
        return Markup()
    return Markup('<span class="control">… {:,} more characters</span>').format(rest)


def plain(text: str) -> Markup:
    """Escape a text, and show characters that are invisible or change the direction of writing by their number."""
    if text.replace("\n", "").isprintable():
        return escape(text)
    parts = []
    for character in text:
        if _hidden(character):
            parts.append(Markup('<span class="control">{}</span>').format(_code(character)))
        else:
            parts.append(escape(character))
    return Markup().join(parts)


def coded(text: str) -> Markup:
    """Escape a text, and write what is in backticks as code."""
    parts = []
    for number, part in enumerate(text.split("`")):
        is_code = number % 2 == 1
        parts.append(Markup("<code>{}</code>").format(plain(part)) if is_code else plain(part))
    return Markup().join(parts)


def mathml(latex: str, display: bool = False) -> Markup | None:
    """Return LaTeX without delimiters as MathML; None if it cannot be converted or defines macros."""
    if len(latex) > MAX_FORMULA or _MACROS.search(latex):
        return None
    try:
        tree = convert_to_element(latex, display="block" if display else "inline")
        return Markup(_serialised(tree))
    except Exception:  # the converter raises many unrelated types, such as RecursionError
        return None


def _serialised(element: Element) -> str:
    """Rebuild an element from known names and values. A ValueError names what is not MathML."""
    name = element.tag
    if name not in ELEMENTS:
        raise ValueError(f"<{name}> is not an element of a formula")
    attributes = ""
    for key, value in element.items():
        if key in ATTRIBUTES and _VALUE.fullmatch(value):
            attributes += f' {key}="{value}"'
    children = "".join(_serialised(child) + _text(child.tail) for child in element)
    return f"<{name}{attributes}>{_text(element.text)}{children}</{name}>"


def _text(text: str | None) -> str:
    """Return text inside a formula, without HTML elements; the converter writes symbols as entities (&#x0003C;)."""
    shown = ""
    for character in html.unescape(text or ""):
        shown += _code(character) if _hidden(character) else character
    return html.escape(shown)


def _hidden(character: str) -> bool:
    return character not in "\n\t" and is_hidden(character)


def _code(character: str) -> str:
    return f"U+{ord(character):04X}"
