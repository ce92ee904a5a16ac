"""Reading generated prompts back, independently of the code that wrote them."""

import re

STORY_OPERATORS = {
    **{"buys": "+", "finds": "+", "gets": "+", "wins": "+"},
    **{"loses": "-", "sells": "-", "gives away": "-", "eats": "-"},
}


def expression_of(prompt: str) -> str:
    """The bare expression behind a prompt, read from its text only."""
    bare = re.fullmatch(r"[A-Z][a-z]+(?: out)? (\d.*)\.", prompt)
    if bare:
        return bare[1]
    beginning, *events, _question = re.split(r"(?<=\.) ", prompt)
    expression = re.fullmatch(r"\w+ has (\d+) \w+\.", beginning)[1]
    for event in events:
        verb, number = re.fullmatch(r"[A-Z][a-z]+ ([a-z ]+) (\d+)\.", event).groups()
        expression += f" {STORY_OPERATORS[verb]} {number}"
    return expression


def evaluate(expression: str) -> list[int]:
    """All values of an expression read left to right, by Python's own operators."""
    first, *rest = expression.split()
    values = [int(first)]
    for operator, operand in zip(rest[::2], rest[1::2], strict=True):
        values.append(eval(f"{values[-1]} {operator.replace('mod', '%')} {operand}"))
    return values
