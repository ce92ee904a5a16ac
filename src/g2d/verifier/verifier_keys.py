"""Key `verifier`: a Python function that judges instead of Math-Verify (docs/verifier.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from g2d.jobs.digests import remembered_digest
from g2d.settings import Section, key
from g2d.verifier.user_code import JUDGE, UserCodeError, signature


class PythonVerifier(Section):
    """A Python function that judges every completion, instead of Math-Verify."""

    source: Literal["python"] = key(..., "Judge by a Python file.")
    file: str = key(
        ..., "File with `def judge(problem, completion) -> bool`, relative to the working directory (docs/verifier.md)."
    )


def own_file(verifier: PythonVerifier | None) -> str | None:
    return None if verifier is None else verifier.file


def verifier_params(verifier: PythonVerifier | None) -> dict[str, dict[str, str]]:
    """Return the params of a job that judges, with a digest of the file; none for Math-Verify."""
    if verifier is None:
        return {}
    return {"verifier": verifier.params() | {"content": remembered_digest(verifier.file)}}


def verifier_of(params: Mapping[str, Any]) -> PythonVerifier | None:
    """Invert `verifier_params`; a ValueError if the file has changed."""
    values = params.get("verifier")
    if values is None:
        return None
    verifier = PythonVerifier(source=values["source"], file=values["file"])
    content = remembered_digest(verifier.file)
    if content != values["content"]:
        raise ValueError(
            f"{verifier.file}: changed after this job was planned: sha256 {content}, planned with "
            f"{values['content']}; put it back, or run the same command again, which redoes what depends on it"
        )
    return verifier


def mistake_in(verifier: PythonVerifier) -> str | None:
    """Return what is wrong with the file, without executing it."""
    try:
        given = signature(verifier.file, JUDGE)
    except UserCodeError as error:
        return str(error)
    positional = [*given.posonlyargs, *given.args]
    n_required = len(positional) - len(given.defaults)
    needs_more = n_required > 2 or None in given.kw_defaults
    if needs_more or (len(positional) < 2 and given.vararg is None):
        return f"{JUDGE} in {verifier.file} has other parameters: write def {JUDGE}(problem, completion)"
    return None
