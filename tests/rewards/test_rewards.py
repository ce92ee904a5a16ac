"""Every reward of the package, compared with values by hand."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from g2d.problems import Problem
from g2d.rewards.controls import Format, Random, Wrong
from g2d.rewards.registry import REWARDS, TRUTH, judge, reward_params, reward_settings
from g2d.rewards.reward import Context, VerifiedCompletion, group_name
from g2d.settings import Section
from g2d.verifier import Verifier
from tests.rewards.models import rewards_of

COIN = Random(reward="random")
FORMAT = Format(reward="format")
WRONG = Wrong(reward="wrong")


@pytest.fixture(scope="module")
def verifier() -> Iterator[Verifier]:
    with Verifier(1) as pool:
        yield pool


def completions(
    verifier: Verifier, texts: Sequence[str], answer: str = "5", group: str = "p"
) -> list[VerifiedCompletion]:
    problem = Problem(group.split("#", maxsplit=1)[0], "What?", answer, 1, None, "a test")
    verified = verifier.verify([(answer, text) for text in texts], ["stop"] * len(texts))
    return [VerifiedCompletion(problem, group, i, text, verified[i]) for i, text in enumerate(texts)]


def rewards(
    reward: Section, judged: Sequence[VerifiedCompletion], *, seed: int = 0, stream: str = "training"
) -> list[float | None]:
    return rewards_of(judge(reward, judged, Context(seed, stream)))


TEXTS = [
    r"so \boxed{5}",
    r"so \boxed{\frac{10}{2}}",
    r"so \boxed{6}",
    "so 5",
    r"so \boxed{5",
    r"\boxed{}",
    r"<think> \boxed{5}",
]


@pytest.mark.parametrize(
    ("reward", "expected"),
    [
        (TRUTH, [1, 1, 0, 0, 0, 0, 0]),
        (FORMAT, [1, 1, 1, 0, 0, 1, 0]),
        (WRONG, [0, 0, 1, 0, 0, 0, 0]),
    ],
)
def test_by_hand(verifier: Verifier, reward: Section, expected: list[int]) -> None:
    assert rewards(reward, completions(verifier, TEXTS)) == expected


def test_every_reward_of_the_registry_judges_nothing_and_comes_back_from_its_params() -> None:
    for name, reward in REWARDS.items():
        if name in ("model", "python"):  # these need files: test_model, test_python
            continue
        settings = reward.settings(reward=name)  # type: ignore[call-arg]
        assert judge(settings, [], Context(0, "harvest")) == []
        assert reward_settings(reward_params(settings)) == settings
        assert reward.words(settings)
    assert reward_settings(None) == TRUTH


def test_params_have_the_version() -> None:
    """A higher version runs trainings with the reward again."""
    assert reward_params(COIN) == {"reward": "random", "p": 0.5, "version": 1}


@given(st.integers(0, 1000), st.randoms(use_true_random=False))
def test_a_coin_belongs_to_its_place_and_not_to_the_batch(seed: int, shuffle: random.Random) -> None:
    problem = Problem("p", "?", "5", 1, None, "a test")
    all_of_them = []
    for group in "pqr":
        all_of_them += [VerifiedCompletion(problem, group, i, "", None) for i in range(4)]  # type: ignore[arg-type]
    coins = rewards(COIN, all_of_them, seed=seed)
    places = shuffle.sample(range(12), 7)
    some = [all_of_them[place] for place in places]
    assert rewards(COIN, some, seed=seed) == [coins[place] for place in places]


def test_random_rewards_differ_between_visits_seeds_and_streams_and_have_their_rate(verifier: Verifier) -> None:
    texts = ["no answer"] * 2000
    first = rewards(Random(reward="random", p=0.2), completions(verifier, texts))
    assert 0.17 < sum(filter(None, first)) / 2000 < 0.23  # 3.3 standard deviations
    coins = rewards(COIN, completions(verifier, texts))
    for other in (
        rewards(COIN, completions(verifier, texts, group=group_name("p", 1))),
        rewards(COIN, completions(verifier, texts), seed=1),
        rewards(COIN, completions(verifier, texts), stream="harvest"),
    ):
        assert 0.45 < np.mean(np.equal(coins, other)) < 0.55  # independent, neither equal nor opposite
