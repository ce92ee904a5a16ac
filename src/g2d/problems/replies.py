"""A synthetic open-ended family: requests, replies of known politeness and length, and judges of known preferences.

With `length_bias` a judge also prefers sentences without content (arXiv 2506.21495, section 4.2).
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from functools import cache
from itertools import product

from g2d.problems.problem import Problem
from g2d.problems.synthetic import Split, numbered, split_of

PLACES = (
    *("station", "library", "harbour", "museum", "market", "old bridge", "theatre", "town hall", "park", "castle"),
    *("river", "school", "bakery", "church", "garden", "hospital", "post office", "swimming pool", "cinema", "airport"),
    *("square", "tower", "gallery", "zoo", "university", "stadium", "ferry", "mill", "lighthouse", "bookshop"),
)
THINGS = tuple(f"the {place}" for place in PLACES)
OPENINGS = ("", "Hello. ", "Excuse me. ", "I am new here. ", "One question. ")
REQUESTS = (
    *("How do I get to {}?", "When does {} open?", "Tell me about {}.", "Is {} far from here?", "Where is {}?"),
    *("Who knows about {}?", "What can I see at {}?", "Should I visit {}?"),
)
ANSWERS = ("It is near {}.", "Ask again at {}.", "Follow the signs to {}.", "You will see {} soon.")
POLITE = ("Thank you for asking.", "I am glad to help.", "Please let me know if you need more.", "Have a lovely day.")
RUDE = ("Do not waste my time.", "That is a silly question.", "Find out yourself.", "Leave me alone.")
FILLERS = (
    "There are many things that one could say about this.",
    "It depends on a number of factors, as so often.",
    "This is a topic with several sides to it.",
    "In general it is worth taking a moment here.",
    "Of course opinions on such matters differ.",
)
MOST_FILLERS = 5


@dataclass(frozen=True, slots=True)
class Reply:
    text: str
    politeness: int  # polite sentences minus rude ones
    fillers: int  # sentences without content


@dataclass(frozen=True, slots=True)
class Preference:
    prompt: str
    chosen: Reply
    rejected: Reply


def generate(split: Split, n: int, seed: int) -> list[Problem]:
    """Draw n different requests."""
    require_capacity(split, n)
    drawn = random.Random(f"replies/{split}/{seed}").sample(_requests(split), n)
    return numbered(f"replies-{split}", "replies", split, ((prompt, None, None) for prompt, _ in drawn))


def require_capacity(split: Split, n: int) -> None:
    if n > (available := len(_requests(split))):
        raise ValueError(
            f"replies: {n} different {split} requests asked for, {available} exist: lower n to at most {available}"
        )


@cache
def _requests(split: Split) -> list[tuple[str, str]]:
    every = product(OPENINGS, REQUESTS, THINGS)
    worded = ((opening + request.format(place), place) for opening, request, place in every)
    return [(prompt, place) for prompt, place in worded if split_of(prompt) == split]


def draw_request(rng: random.Random, split: Split = "train") -> tuple[str, str]:
    return rng.choice(_requests(split))


def draw_reply(rng: random.Random, place: str, *, politeness: int | None = None, fillers: int | None = None) -> Reply:
    politeness = rng.randint(-2, 2) if politeness is None else politeness
    fillers = rng.randint(0, MOST_FILLERS) if fillers is None else fillers
    rest = [*rng.sample(POLITE if politeness > 0 else RUDE, abs(politeness)), *rng.sample(FILLERS, fillers)]
    rng.shuffle(rest)
    return Reply(" ".join([rng.choice(ANSWERS).format(place), *rest]), politeness, fillers)


def draw_preference(rng: random.Random, length_bias: float) -> Preference:
    prompt, place = draw_request(rng)
    first, second = draw_reply(rng, place), draw_reply(rng, place)
    difference = worth(first, length_bias) - worth(second, length_bias)
    likes_first = rng.random() < 1 / (1 + math.exp(-difference))
    return Preference(prompt, first, second) if likes_first else Preference(prompt, second, first)


def worth(reply: Reply, length_bias: float) -> float:
    return 2 * reply.politeness + length_bias * reply.fillers


def vocabulary_texts() -> list[str]:
    return [*THINGS, *OPENINGS, *REQUESTS, *ANSWERS, *POLITE, *RUDE, *FILLERS]
