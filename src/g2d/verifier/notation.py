r"""The one way to write each symbol of an answer: `≤`, `\le` and `\leqslant` are `\leq`, `{\bf 6}` is `{6}`.

Notation that Math-Verify cannot read becomes LaTeX: syntax of programs, arguments without braces, choices.
"""

from __future__ import annotations

import re
import unicodedata

from g2d.verifier.statements import GREEK

# The way in which a symbol is written, and the other ways.
_WAYS = r"""
\leq  \le \leqslant \leqq ≤ ⩽ ≦     \geq  \ge \geqslant \geqq ≥ ⩾ ≧     \lt  \lneq       \gt  \gneq     \neq  \ne ≠
\approx  \simeq \thickapprox ≈      \cdot  · ⋅ ∙ •                      \infty  ∞        \cup  ∪        \in  ∈
\frac  \dfrac \tfrac \cfrac \nicefrac \sfrac                            \binom  \dbinom \tbinom
\emptyset  \varnothing ∅            \setminus  \backslash \smallsetminus ∖               \$  \mathdollar \textdollar
^\circ  \degree \degrees \textdegree ° º ˚                              \mathbb{R}  \R \Reals \reals ℝ
\mathbb{Z}  \Z ℤ                    \mathbb{N}  \N ℕ                    \mathbb{Q}  \Q ℚ                \mathbb{C}  ℂ
\text  \textrm \textbf \textit \textsf \texttt \textsl \textsc \textup \textmd \textnormal \emph \mbox \hbox
\text  \mathrm \mathbf \mathit \mathsf \mathtt \mathnormal           \text{i}  \imath
-  ‐ ‑ ‒ – −                        /  ⁄ ∕
"""
_DROPPED = r"""
\tiny \scriptsize \footnotesize \small \normalsize \large \Large \LARGE \huge \Huge \displaystyle \textstyle
\scriptstyle \limits \nolimits \bf \rm \it \sf \tt \em \bfseries \itshape \mathstrut \strut \noindent \centering \hfill
\underline \uline \boldsymbol \pmb \bm \ensuremath \big \Big \bigg \Bigg \bigl \Bigl \biggl \Biggl \bigr \Bigr \biggr
\Biggr \bigm \Bigm \biggm \Biggm
"""
_SAME = dict.fromkeys(_DROPPED.split(), "")


def other_ways(table: str) -> dict[str, str]:
    """Read a table of symbols: the way in which a symbol is written by each of its other ways.

    Four spaces or a line end separate symbols, and two spaces the written way from the others.
    """
    written_by: dict[str, str] = {}
    for entry in re.split(r"\s{4,}|\n", table.strip()):
        written, _, others = entry.partition("  ")
        written_by |= dict.fromkeys(others.split(), written)
    return written_by


_SAME |= other_ways(_WAYS)


def plain_characters(text: str) -> str:
    r"""Replace characters outside ASCII that have a plain form, and remove invisible ones.

    >>> plain_characters("x¹² ≤ ３½")
    'x^{12} \\leq  3\\frac{1}{2}'
    """
    if text.isascii():
        return text
    written = "".join(map(_plain, text))
    # `x¹²` is `x^{1}^{2}` so far.
    written = re.sub(r"(?<=([\^_])\{[0-9n+()-])\}\1\{", "", written)
    return unicodedata.normalize("NFKC", re.sub(r"([\^_])\{([^{}])\}", r"\1\2", written))


def _plain(character: str) -> str:
    """Return what a character means in ASCII or LaTeX, itself if that is not known."""
    if character.isascii():
        return character
    if character in _SAME:
        written = _SAME[character]
        return f"{written} " if written[-1].isalpha() and written[0] == "\\" else written
    if unicodedata.category(character) == "Cf":  # zero-width spaces, soft hyphens, marks of direction
        return ""
    kind = unicodedata.decomposition(character).partition(" ")[0]
    if kind in ("<super>", "<sub>"):
        return f"{'^' if kind == '<super>' else '_'}{{{_plain(unicodedata.normalize('NFKC', character))}}}"
    if kind == "<fraction>":  # NFKC makes `½` 1⁄2, so that `3½` would be 31⁄2
        top, _, bottom = unicodedata.normalize("NFKC", character).partition("\N{FRACTION SLASH}")
        return rf"\frac{{{top}}}{{{bottom}}}" if bottom else character
    return character


_COMMAND = re.compile(r"(?P<command>\\[A-Za-z]+)\s*(?P<letter>(?=[A-Za-z]))?")
_SYMBOL = rf"\\(?:{GREEK}|pi|infty)(?![A-Za-z])"
BRACED = r"\{(?:[^{}\\]|\\[\s\S])*+\}"
for _ in range(5):
    BRACED = rf"\{{(?:[^{{}}\\]|\\[\s\S]|{BRACED})*+\}}"
_ARGUMENT = rf"\s*(?:{BRACED}|{_SYMBOL}|[0-9A-Za-z])"
_LAYOUT = (
    # `\textcolor{blue}{6}` and `{\color{blue} 6}`
    (r"\\(?:textcolor|colorbox|color)\s*(?:\[[^\[\]]*\]\s*)?\{[^{}]*\}\s*", ""),
    (r"\\(?:[hv]space|[hv]?phantom|label|tag)\*?\s*\{[^{}]*\}", " "),
    (r"\\(?:begin|end)\s*\{(?:align(?:ed)?|equation|gather(?:ed)?|split|center)\*?\}", " "),
    (r"\\(?:left|right)\s*\.", ""),
    (r"(?<=\\\\)\s*\[-?[0-9.]+\s*(?:ex|em|pt|cm|mm|in)\]", " "),
    (r"\{\s*\\(?:rm|bf|it|sf|tt)\s+(?=[^{}\\]*\})", r"\\text{"),
    (r"\\mathrm\s*\{\s*(?P<letter>[Td])\s*\}", r"\g<letter>"),
)
_BRACES = (
    (r"\\text\s*\{\s*\}|\\text\s*(?=\{(?:[ -@\[-`|~]*\}|[ 0-9+-]*\\(?:frac|sqrt)))", ""),  # no words
    (rf"(?P<before>\\(?:frac|binom)|\\sqrt(?:\[[^\[\]]*\])?)\s*(?P<argument>{_SYMBOL})", r"\g<before>{\g<argument>}"),
    (rf"(?P<before>\\(?:frac|binom){_ARGUMENT})\s*(?P<argument>{_SYMBOL})", r"\g<before>{\g<argument>}"),
    (rf"(?P<before>[\^_]|\\sqrt)\s*(?P<a>\\frac{_ARGUMENT}{_ARGUMENT}|\\sqrt{_ARGUMENT})", r"\g<before>{\g<a>}"),
    (r"\\mathbb\s*(?P<set>[A-Z])", r"\\mathbb{\g<set>}"),
    # `sqrt3` and `√3`; `\sqrt13` stays, since LaTeX reads it as `\sqrt{1}3`.
    (r"(?:(?<!\\)sqrt|√)\s*(?P<digits>[0-9]+(?:\.[0-9]+)?)", r"\\sqrt{\g<digits>}"),
    (r"(?<!\\)sqrt|√", r"\\sqrt"),
    (r"(?P<root>\\sqrt(?:\[[^\[\]]*\])?)\s*\((?P<a>(?:[^()]|\((?:[^()]|\([^()]*\))*\))*+)\)", r"\g<root>{\g<a>}"),
)
_LAYOUT_RULES = [(re.compile(pattern), replacement) for pattern, replacement in _LAYOUT]
_BRACE_RULES = [(re.compile(pattern), replacement) for pattern, replacement in _BRACES]


def in_one_way(text: str) -> str:
    r"""Write commands in one way, without colour, size and weight, and their arguments in braces.

    >>> in_one_way(r"\textcolor{blue}{\nicefrac\pi4} \leqslant \emph{5}")
    '{\\frac{\\pi}4} \\leq {5}'
    """
    for pattern, replacement in _LAYOUT_RULES:
        text = pattern.sub(replacement, text)
    text = _COMMAND.sub(_in_one_way, text)
    before = ""
    while text != before:
        before = text
        for pattern, replacement in _BRACE_RULES:
            text = pattern.sub(replacement, text)
    return text


def _in_one_way(match: re.Match[str]) -> str:
    written = _SAME.get(match["command"])
    if written is None:
        return match[0]
    return written if match["letter"] is None else f"{written} "


_TEXT = re.compile(r"(\\(?:text|operatorname|math[a-z]*)\s*\{[^{}]*\})")
_ABSOLUTE = re.compile(
    r"(?:\\(?:text|operatorname)\s*\{\s*abs\s*\}|(?<![A-Za-z\\])abs)\s*\((?P<content>(?:[^()]|\([^()]*\))*)\)"
)
_FUNCTION = re.compile(
    r"(?<![A-Za-z\\])(?P<name>exp|ln|log|arcsin|arccos|arctan|sinh|cosh|tanh|sin|cos|tan|sec|csc|cot)"
    r"(?=\s*\(|\s*[0-9]|\s+[a-z](?![A-Za-z])|\s*\\)"
)
_POWER = re.compile(r"\s*\*\*\s*(?:\((?P<sum>[^()]*)\)|(?P<power>-?[0-9]+(?:\.[0-9]+)?|[A-Za-z]))")
_EXPONENT = re.compile(
    r"(?<![A-Za-z0-9_.\\])(?P<number>[0-9]+(?:\.[0-9]+)?|\.[0-9]+)[eE](?P<power>[+-]?[0-9]{1,3})(?![0-9A-Za-z.^_])"
)


def as_latex(text: str) -> str:
    r"""Write functions, powers and exponents as LaTeX; words in `\text` stay.

    >>> as_latex("exp(5) + 3**12 + 1.2e5 + abs(y-4)")
    '\\exp(5) + 3^{12} + 1.2\\cdot 10^{5} + |y-4|'
    """
    parts = _TEXT.split(_ABSOLUTE.sub(r"|\g<content>|", text))
    for position in range(0, len(parts), 2):  # odd ones are text
        part = _FUNCTION.sub(r"\\\g<name>", parts[position])
        part = _POWER.sub(r"^{\g<sum>\g<power>}", part)
        parts[position] = _EXPONENT.sub(r"\g<number>\\cdot 10^{\g<power>}", part).replace("^{+", "^{")
    return "".join(parts)
