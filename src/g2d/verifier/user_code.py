"""A function of the user's in a Python file. Planning reads its signature; only worker processes execute the file."""

from __future__ import annotations

import ast
import hashlib
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from traceback import walk_tb
from types import ModuleType
from typing import Any

JUDGE = "judge"  # function of a verifier
UserFunction = Callable[..., Any]


class UserCodeError(ValueError):
    """The message is one line with file and fix."""


def digest(file: str) -> str:
    return hashlib.sha256(_read(file)).hexdigest()


def judge_of(file: str) -> list[str]:
    """Return the function of a verifier's file, as a pool names it."""
    return ["verifier", file, JUDGE, digest(file)]


@cache
def signature(file: str, name: str) -> ast.arguments:
    """Return the parameters of a file's function, without executing it; a UserCodeError if there is none."""
    try:
        tree = ast.parse(_read(file))
    except (SyntaxError, ValueError) as error:
        raise UserCodeError(f"{file} cannot be read as Python ({_reason(error, file)}): mend it") from None
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    if name not in functions:
        named = ", ".join(functions) or "none"
        raise UserCodeError(f"{file} has no function {name} (its functions: {named}): define it")
    if isinstance(functions[name], ast.AsyncFunctionDef):
        raise UserCodeError(f"{name} in {file} is async: make it a plain function")
    return functions[name].args


def load_function(file: str, name: str, sha256: str) -> UserFunction:
    """Execute the file, without a bytecode cache, and return its function; a UserCodeError names what fails."""
    code = _read(file)
    if hashlib.sha256(code).hexdigest() != sha256:
        raise UserCodeError(f"{file} changed after this job began: put it back, or run the same command again")
    module = ModuleType("user_code")
    module.__file__ = file
    sys.modules[module.__name__] = module  # dataclasses need it
    try:
        exec(compile(code, file, "exec", dont_inherit=True), vars(module))
        function: UserFunction = vars(module)[name]
    except BaseException as error:  # also `sys.exit`
        raise UserCodeError(f"{file} cannot be executed ({_reason(error, file)}): mend it") from None
    return function


def first_words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:200]


def _read(file: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise UserCodeError(f"{file} cannot be read ({error.strerror}): correct the path") from None


def _reason(error: BaseException, file: str) -> str:
    if isinstance(error, SyntaxError):
        return f"SyntaxError: {error.msg}, line {error.lineno}"
    lines = [line for frame, line in walk_tb(error.__traceback__) if frame.f_code.co_filename == file]
    return first_words(error) + (f", line {lines[-1]}" if lines else "")
