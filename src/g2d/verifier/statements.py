r"""Names before an answer's value (`k_{\max}(n) = 2n+1`) and qualifiers behind it (`2k\pi, k \in \mathbb{Z}`).

Math-Verify handles some names and no qualifiers.
"""

from __future__ import annotations

import re

_SIZED = r"(?:\\left)?\((?:[^()]|\([^()]*\))*\)"
_SCRIPT = r"\{(?:[^{}]|\{[^{}]*\})*\}|\\[A-Za-z]+|[A-Za-z0-9*]"
GREEK = (
    "alpha|beta|gamma|delta|(?:var)?epsilon|zeta|eta|(?:var)?theta|iota|kappa|lambda|mu|nu|xi|(?:var)?rho|sigma|tau|"
    "(?:var)?phi|chi|psi|omega|Gamma|Delta|Theta|Lambda|Xi|Sigma|Phi|Psi|Omega|ell"
)
_NAMED = re.compile(
    r"(?P<name>(?:\\(?:angle|triangle)\s*)?"
    rf"(?:[A-Za-z]{{1,3}}|\\(?:{GREEK})(?![A-Za-z])|\\(?:text|mathrm|mathcal|operatorname|mbox)\s*\{{[A-Za-z .]+\}})"
    rf"(?:\s*(?:'|[_^]\s*(?:{_SCRIPT})))*(?:\s*(?P<argument>{_SIZED}))?)"
    r"\s*=\s*(?P<value>\S.*)",
    re.DOTALL,
)
RELATION = re.compile(r"[=<>≤≥≠]|\\(?:[lg]eq?|[lg]t|neq?|approx|equiv|in)(?![A-Za-z])")
_POWER = re.compile(r"\^\s*(?!\{?\s*(?:\\prime|\*|'))")


def split_name(latex: str) -> tuple[str, str] | None:
    r"""Split `A_{\min} = 1/2` or `f(80) = 12.5` into name and value; None for `x^2 = 5`, chains and lists.

    The name is in small letters: `F(2)` and `f(2)` are one name.
    """
    named = _NAMED.fullmatch(latex) if "=" in latex else None
    if named is None or RELATION.search(named["value"]):
        return None
    before_argument = named["name"].removesuffix(named["argument"] or "")
    if _POWER.search(before_argument):
        return None
    name = re.sub(r"\\(?:left|right|text|mathrm|mbox|operatorname)(?![A-Za-z])|[\s{}]", "", named["name"])
    return name.casefold(), named["value"]


_COMMAND = re.compile(r"\\[A-Za-z]+")
_MAY_QUALIFY = re.compile(r"\\in(?![A-Za-z])|\\forall|for|where|with")


def names_differ(reference: str, answer: str) -> bool:
    """Reject `f(8) = 5` for `f(80) = 5`, and a derivative: Math-Verify ignores arguments and primes."""
    own = split_name(reference)
    other = split_name(answer)
    if own is None or other is None or own[0] == other[0]:
        return False
    has_letters = re.search("[A-Za-z]", _COMMAND.sub("", own[1] + other[1]))
    return not has_letters or own[0].count("'") != other[0].count("'")


_PERCENT = re.compile(r"\s*\\?%\Z")


def without_percent(latex: str) -> str | None:
    bare = _PERCENT.sub("", latex)
    return bare if bare != latex and "%" not in bare else None


_TEXT = re.compile(r"\\(?:text|mbox|textrm|mathrm)\s*\{([^{}]*)\}")
_LETTER = r"[A-Za-z](?:_\{?[A-Za-z0-9]\}?)?"
_LETTERS = rf"{_LETTER}(?:\s*,\s*{_LETTER})*"
_IN = r"\s*\\in(?![A-Za-z])\s*"
_SET = r"(?:\\mathbb\s*\{?\s*)?(?P<set>[A-Z])\s*\}?(?P<part>\s*[_^]\s*(?:\{[^{}]*\}|\\?[A-Za-z0-9+*-]+))*"
_KIND = (
    r"(?P<{}>(?:positive |negative |non-?negative |non-?zero |arbitrary |real )?"
    r"(?:integer|real|natural|rational|whole|constant)s?(?: numbers?)?)"
)
_QUALIFIER = re.compile(
    r"(?P<opening>(?:for|where|with)\b)?\s*(?P<all>\\forall|(?:all|any|every|each|some)\b)?\s*"
    rf"(?:{_KIND.format('kind')}\s+)?(?P<letters>{_LETTERS})"
    rf"(?:{_IN}{_SET}| is an? {_KIND.format('kind_of_one')}| are {_KIND.format('kind_of_many')}|"
    r" (?:is|are|denotes?|represents?) the [A-Za-z ]+)?"
)
_START = re.compile(
    rf"(?:[,;(\[]|\\q?quad(?![A-Za-z])|\\[,;: ])\s*(?={_LETTERS}{_IN})|(?=\\forall)|"
    r"(?:\\(?:text|mbox|textrm|mathrm)\s*\{[\s,(]*|(?<![A-Za-z\\]))(?=(?:for|where|with)\b)"
)
_NAMES_OF_SETS = {"integer": "Z", "real": "R", "natural": "N", "rational": "Q"}


def split_qualifier(latex: str) -> tuple[str, str | None] | None:
    r"""Split off `, k \in \mathbb{Z}` or `\text{ for all integers } k`; return the rest, and the set if known.

    None if nothing is before it: `x \in \mathbb{R}` is an answer.
    """
    if not _MAY_QUALIFY.search(latex):
        return None
    for start in _START.finditer(latex):
        head = re.sub(r"(?:\\q?quad|\\[,;: ]|[\s,;(\[])+\Z", "", latex[: start.start()])
        tail = " ".join(_TEXT.sub(r" \1 ", latex[start.start() :]).replace("$", " ").split())
        qualifier = _QUALIFIER.fullmatch(re.sub(r"\A(?:[\s,;(\[]|\\q?quad|\\[,;: ])+|[\s.)\]]+\Z", "", tail))
        if qualifier is None or not (qualifier["opening"] or qualifier["all"] or qualifier["set"]):
            continue
        letters = re.split(r"\s*,\s*", qualifier["letters"])
        if head and len(set(letters)) == len(letters) and not re.search(r"(?:[:|{=<>]|\\mid)\Z", head):
            return head, _set(qualifier)
    return None


def _set(found: re.Match[str]) -> str | None:
    named = found["set"] or found["kind"] or found["kind_of_one"] or found["kind_of_many"]
    if named is None or found["part"]:
        return None
    named = named.removesuffix(" numbers").removesuffix(" number").removesuffix("s")
    return _NAMES_OF_SETS.get(named, named if len(named) == 1 else None)
