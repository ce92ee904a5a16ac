"""A verifier for problems of reasoning-gym (0.1.25): an answer is right if the task's `score_answer` gives 1.

    verifier: {source: python, file: examples/reasoning_gym_verifier.py}
    pool: {source: local, path: countdown.jsonl, fields: {prompt: question, metadata: metadata}}

docs/verifier.md writes such a file. The answer is what the last complete box holds. Some tasks evaluate it as Python: a
completion must not run code, so their `eval` accepts only literals, and formulas for sympy only arithmetic.
"""

import ast
import re
from importlib import import_module

from reasoning_gym import get_score_answer_fn

from g2d.verifier import last_boxed

# A test compares both lists with the package.
EVALUATING = (
    "algorithmic.binary_matrix",
    "algorithmic.spiral_matrix",
    "algorithmic.string_insertion",
    "games.n_queens",
)
FORMULAS = ("countdown", "puzzle24", "polynomial_multiplication", "simple_integration", "intermediate_integration")

FORMULA = re.compile(r"[A-Za-z0-9+\-*/^(),.\s]*")
NAME = re.compile(r"[A-Za-z]+")
ATTRIBUTE = re.compile(r"\.\s*[A-Za-z]")
FUNCTIONS = {
    *("sin", "cos", "tan", "cot", "sec", "csc", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh"),
    *("atanh", "exp", "log", "ln", "sqrt", "Abs", "pi"),
}

for module in EVALUATING:
    import_module(f"reasoning_gym.{module}").eval = ast.literal_eval


def judge(problem, completion):
    task = problem["metadata"]["source_dataset"]
    answer = last_boxed(completion)
    if answer is None or (task in FORMULAS and not is_formula(answer)):
        return False
    entry = {"question": problem["prompt"], "answer": problem["answer"], "metadata": problem["metadata"]}
    return get_score_answer_fn(task)(answer, entry) == 1


def is_formula(answer):
    """Whether sympy's `parse_expr` can only do arithmetic with it."""
    names = NAME.findall(answer)
    return (
        FORMULA.fullmatch(answer) is not None
        and ATTRIBUTE.search(answer) is None
        and all(len(name) == 1 or name in FUNCTIONS for name in names)
    )
