"""A verifier: the last line of a completion is the answer, apart from case and spaces.

verifier: {source: python, file: examples/exact_match.py}
"""


def judge(problem, completion):
    lines = completion.strip().splitlines()
    return bool(lines) and _words(lines[-1]) == _words(problem["answer"])


def _words(text):
    return text.casefold().split()
