"""Reading generated prompts back, independently of the code that wrote them."""

import re

STORY_OPERATORS = {"+": ("buys", "finds", "gets", "wins"), "-": ("loses", "sells", "gives away", "eats")}


def expression_of(prompt: str) -> str:
    """The bare expression behind a prompt, read from its text only."""
    if match := re.fullmatch(r"[A-Z][a-z]+(?: out)? (\d.*)\.", prompt):
        return match[1]
    operators = {verb: operator for operator, verbs in STORY_OPERATORS.items() for verb in verbs}
    beginning, *events, _question = re.split(r"(?<=\.) ", prompt)
    start = re.fullmatch(r"\w+ has (\d+) \w+\.", beginning)
    matches = [re.fullmatch(r"[A-Z][a-z]+ ([a-z ]+) (\d+)\.", event) for event in events]
    return " ".join([start[1], *(f"{operators[event[1]]} {event[2]}" for event in matches)])


def evaluate(expression: str) -> list[int]:
    """All values of an expression read left to right, by Python's own operators."""
    first, *rest = expression.split()
    values = [int(first)]
    for operator, operand in zip(rest[::2], rest[1::2], strict=True):
        values.append(eval(f"{values[-1]} {'%' if operator == 'mod' else operator} {operand}"))
    return values
