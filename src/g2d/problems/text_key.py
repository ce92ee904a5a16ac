r"""The normal form of a problem's text: two texts are the same problem if their keys are equal.

Publishers type a problem differently: `x^{2}` or `x^2`, `\leq` or `\le` or `≤`, `1,200` or `1200`, with other spaces,
delimiters and fonts. The key keeps what a reader would read. It ignores upper and lower case; paraphrases have other
keys.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from itertools import product

from g2d.verifier.notation import other_ways

# The way in which a symbol is written in a key, and the other ways.
_WAYS = r"""
\leq  \le \leqslant ≤ ⩽        \geq  \ge \geqslant ≥ ⩾       \neq  \ne ≠              <  \lt              >  \gt
\approx  ≈                     \equiv  ≡                     \sim  ∼                  \cong  ≅            \propto  ∝
\times  ×                      *  \cdot \ast · ⋅             \div  ÷                  \pm  ±              \mp  ∓
\frac  \dfrac \tfrac \cfrac    \binom  \dbinom \tbinom       \sqrt  √                 \circ  ∘            \degree  °
\infty  ∞                      \sum  ∑                       \prod  ∏                 \int  ∫             \partial  ∂
\in  ∈                         \notin  ∉                     \subset  ⊂               \subseteq  ⊆        \cup  ∪
\cap  ∩                        \emptyset  \varnothing ∅      \forall  ∀               \exists  ∃          \mapsto  ↦
\to  \rightarrow \longrightarrow →    \Rightarrow  \implies ⇒    \Leftrightarrow  \iff ⇔    \wedge  \land    \vee  \lor
\angle  ∠                      \triangle  \bigtriangleup △   \perp  ⊥                 \parallel  ∥        :  \colon
|  \lvert \rvert \vert \mid ∣  \|  \lVert \rVert \Vert       \lbrace  \{              \rbrace  \}         [  \lbrack
]  \rbrack                     \lfloor  ⌊                    \rfloor  ⌋               \lceil  ⌈           \rceil  ⌉
\langle  ⟨                     \rangle  ⟩                    \\  \newline \cr         %  \%               #  \#
_  \_                          '  \prime ’ ‘ ′ ´             -  − – ‐ ‑ ‒             /  ⁄                "  “ ” „ « »
...  \ldots \cdots \dots \dotsc \dotsb …                     mod  \bmod \mod          \mathbb R  ℝ        \mathbb Z  ℤ
\mathbb Q  ℚ                   \mathbb N  ℕ                  \mathbb C  ℂ             \alpha  α           \beta  β
\gamma  γ                      \delta  δ                     \epsilon  ε              \theta  θ           \lambda  λ
\mu  μ                         \pi  π                        \rho  ρ                  \sigma  σ           \tau  τ
\phi  φ                        \omega  ω                     \Delta  Δ                \Sigma  Σ           \Omega  Ω
arccos  \arccos                arcsin  \arcsin               arctan  \arctan          cos  \cos           cosh  \cosh
cot  \cot                      csc  \csc                     deg  \deg                det  \det           dim  \dim
exp  \exp                      gcd  \gcd                     inf  \inf                lcm  \lcm           lg  \lg
lim  \lim                      ln  \ln                       log  \log                max  \max           min  \min
sec  \sec                      sin  \sin                     sinh  \sinh              sup  \sup           tan  \tan
tanh  \tanh
"""
_SAME: dict[str, str] = {}  # tokens of LaTeX
_TRANSLATED = {"\u200b": "", "\ufeff": ""}  # other characters
for _other, _written in other_ways(_WAYS).items():
    if _other.isascii():
        _SAME[_other] = _written
    else:
        _TRANSLATED[_other] = f"{_written} "
_TABLE = str.maketrans(_TRANSLATED)

_SCRIPTS = {**dict.fromkeys("⁰¹²³⁴⁵⁶⁷⁸⁹", "^"), **dict.fromkeys("₀₁₂₃₄₅₆₇₈₉", "_")}
_SCRIPTED = re.compile(f"[{''.join(list(_SCRIPTS)[:10])}]+|[{''.join(list(_SCRIPTS)[10:])}]+")

# LaTeX's accents, as in Pok\'emon.
_ACCENTS = {"'": "\u0301", "`": "\u0300", "^": "\u0302", '"': "\u0308", "~": "\u0303"}
_ACCENTED = re.compile(r"\\(['`^\"~])\s*\{?([A-Za-z])\}?")
_CHOOSE = re.compile(r"\{([^{}\\]+)\\choose\b([^{}\\]+)\}")
_SPACE_OF_WIDTH = re.compile(r"\\[hv]space\*?\s*\{[^{}]*\}|(?<=\\\\)\s*\[-?[\d.]+\s*(?:ex|em|pt|cm|mm|in)\]")

# A comma before three digits counts as a thousands separator, even in a list, so that both ways of typing agree.
_TOKEN = re.compile(
    r"""
      \\(?:begin|end)\s*\{[A-Za-z]+\*?\}                       # an environment
    | \\[A-Za-z]+\*?                                           # a command
    | \\[\s\S]                                                 # an escaped character
    | \d{1,3}(?:(?:,|\{,\}|\\,)(?:\s|\\!)*\d{3})+(?!\d)(?:\.\d+)?  # a number with thousands separators
    | \d+(?:\.\d+)? | \.\d+                                    # another number
    | [^\W\d_]+                                                # a word, or letters of a formula
    | ``|''                                                    # LaTeX's quotes
    | \.{2,}                                                   # an ellipsis
    | [^\w\s] | _                                              # any other symbol
    """,
    re.VERBOSE,
)
_NUMBER = re.compile(r"\.?\d.*", re.DOTALL)
_SEPARATOR = re.compile(r"[^\d.]+")
_ENVIRONMENT = re.compile(r"\\(begin|end)\s*\{([A-Za-z]+)\*?\}")

_SIZING = {rf"\{size}{side}" for size, side in product(("big", "Big", "bigg", "Bigg"), ("", "l", "m", "r"))}
_SPACING = {r"\,", r"\;", r"\:", r"\!", r"\>", r"\/", "\\ ", "\\\n", "\\\t", r"\quad", r"\qquad", "~"}
_SPACING |= {r"\enspace", r"\thinspace", r"\medspace", r"\thickspace", r"\negthinspace", r"\noindent", r"\par"}
_STYLE = {r"\displaystyle", r"\textstyle", r"\scriptstyle", r"\limits", r"\nolimits", r"\rm", r"\bf", r"\it", r"\em"}
_MATH_MODE = {"$", r"\$", r"\(", r"\)", r"\[", r"\]", "&", r"\&"}
_PUNCTUATION = set('.,;?"`')
_DROPPED = _SIZING | _SPACING | _STYLE | _MATH_MODE | _PUNCTUATION | {r"\left", r"\middle", r"\right", "``"}
_FONTS = {rf"\{font}" for font in ("text", "mbox", "hbox", "fbox", "textrm", "textbf", "textit", "textsf", "texttt")}
_FONTS |= {
    rf"\{font}" for font in ("emph", "mathrm", "mathbf", "mathit", "mathsf", "mathtt", "mathnormal", "underline")
}
_FONTS |= {r"\boldsymbol", r"\bm", r"\operatorname", r"\operatorname*", r"\textup", r"\textnormal", r"\ensuremath"}
_DISPLAYS = {"align", "aligned", "alignat", "equation", "gather", "gathered", "split", "multline", "eqnarray"}
_DISPLAYS |= {"displaymath", "math", "center"}

_ELLIPSIS = "..."
_TWO_ARGUMENTS = {r"\frac", r"\binom"}
_RAISED = {(r"^", r"\circ"): r"\degree", ("^", "'"): "'"}


def text_key(prompt: str) -> str:
    """Return the normal form of a text, for comparing."""
    return _joined(_without_braces(_in_one_way(_without_layout(_TOKEN.findall(_in_ascii(prompt))))))


def _in_ascii(text: str) -> str:
    """Write symbols of Unicode as LaTeX does; letters are composed."""
    text = _SPACE_OF_WIDTH.sub(" ", html.unescape(text))
    text = _CHOOSE.sub(r"\\binom{\1}{\2}", text)
    text = _ACCENTED.sub(lambda match: match[2] + _ACCENTS[match[1]], text)
    text = _SCRIPTED.sub(_scripted, text).translate(_TABLE)
    # Once more, since NFKC changes look-alikes, such as the micro sign to a mu.
    return unicodedata.normalize("NFKC", text).translate(_TABLE)


def _scripted(match: re.Match[str]) -> str:
    digits = "".join(str(unicodedata.digit(character)) for character in match[0])
    return f"{_SCRIPTS[match[0][0]]}{{{digits}}}"


def _without_layout(tokens: Iterable[str]) -> Iterator[str]:
    """Drop layout and punctuation: environments of formulas with their line breaks, quotes, spaces, sizes."""
    displays = 0  # environments around the token that only lay out formulas
    quotes = 0
    before = ""
    for token in tokens:
        environment = _ENVIRONMENT.fullmatch(token)
        if environment and environment[2] in _DISPLAYS:
            displays += 1 if environment[1] == "begin" else -1
        elif token == "``":
            quotes += 1
        elif token == "''" and (quotes or len(before) > 1):  # after a letter it is a second derivative
            quotes = max(quotes - 1, 0)
        elif token not in _DROPPED and not (token == r"\\" and displays > 0):
            yield token
        before = token


def _in_one_way(tokens: Iterable[str]) -> list[str]:
    """Write each symbol in one way."""
    written: list[str] = []
    for token in tokens:
        before = written[-1] if written else ""
        symbol = _SAME.get(token, token)
        if _NUMBER.fullmatch(symbol):
            written += _number(symbol, before)
        elif symbol.startswith(".."):
            written.append(_ELLIPSIS)
        elif symbol.startswith("\\"):  # \Delta is not \delta
            written.append(symbol)
        else:
            written.append(symbol.casefold())
    return written


def _number(token: str, before: str) -> list[str]:
    number = _SEPARATOR.sub("", token)
    if number.startswith("."):
        return [f"0{number}"]
    if before in _TWO_ARGUMENTS and number.isdigit() and len(number) > 1:  # \frac12
        return [part for part in (number[0], number[1], number[2:]) if part]
    return [number]


def _without_braces(tokens: Sequence[str]) -> list[str]:
    r"""Drop braces around one number, letter or command, and fonts with theirs; `x^{a+b}` keeps its braces."""
    kept: list[str] = []  # "" for a dropped token
    opened: list[tuple[int, int]] = []  # place of each open brace in `kept`, and tokens before it
    count = 0  # tokens in `kept`
    for token in tokens:
        if token == "{":
            opened.append((len(kept), count))
        if token != "}" or not opened:
            kept.append(token)
            count += 1
            continue
        start, before = opened.pop()
        inside = count - before - 1
        command = kept[start - 1] if start > 0 else ""
        if command == r"\pmod":
            kept[start - 1 : start + 1] = ["", "(mod"]
            kept.append(")")
        elif command in _FONTS:
            kept[start - 1 : start + 1] = ["", ""]
            count -= 2
        elif inside == 0 or (inside == 1 and _is_symbol(kept[-1])):
            kept[start] = ""
            count -= 1
        else:
            kept.append(token)
            count += 1
        while kept and not kept[-1]:
            kept.pop()
    return [token for token in kept if token and token not in _FONTS]


def _is_symbol(token: str) -> bool:
    return token not in "{}" and (len(token) == 1 or token[0] in "\\0123456789" or token == _ELLIPSIS)


def _joined(tokens: Sequence[str]) -> str:
    r"""Join tokens; only numbers need a space between them. `\frac{a}{b}` of two symbols is a/b."""
    parts: list[str] = []
    waiting = [*reversed(tokens)]
    while waiting:
        token = waiting.pop()
        if token == r"\frac" and len(waiting) > 1 and _is_symbol(waiting[-1]) and _is_symbol(waiting[-2]):
            waiting.insert(-1, "/")
            continue
        if token == r"\pmod" and waiting:
            waiting[-1] = f"(mod{waiting[-1]})"
            continue
        before = parts[-1] if parts else ""
        if (before, token) in _RAISED:
            parts[-1] = _RAISED[before, token]
            continue
        if before[-1:].isdigit() and token[0].isdigit():
            parts.append(" ")
        parts.append(token)
    return "".join(parts)
