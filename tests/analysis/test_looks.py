"""Looks at a race: what is decided at each, what runs next, and that a look is taken once with one plan."""

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom

from g2d.analysis.looks import Asked, Plan, stepped, take_look
from g2d.tables.looks import LOOK

NAMES = ("K0", "K100", "K300")
PLAN = Plan(
    looks=(2, 3, 5),
    asked=(*(Asked("K=0", name, "K0") for name in NAMES[1:]), Asked("M0", "K0", "M0")),
    margin=0.05,
    alike=NAMES,
    without_seeds=("M0",),
    steps="holm",
)


def answered(rng, accuracy, n_seeds=5, n_questions=400, shared=0.95):
    """Shares of right answers: most questions are settled for all policies, the others are answered afresh."""
    settled = np.linspace(0, 1, n_questions) < accuracy
    afresh = rng.random((n_seeds, n_questions)) < accuracy
    return np.where(rng.random((n_seeds, n_questions)) < shared, settled, afresh).astype(float)


@pytest.fixture
def results():
    rng = np.random.default_rng(0)
    return {"M0": answered(rng, 0.3, 1)} | {
        name: answered(rng, accuracy) for name, accuracy in zip(NAMES, (0.5, 0.7, 0.5), strict=True)
    }


def whole_race(plan, results):
    looks = [take_look(plan, results)]
    while looks[-1].next:
        looks.append(take_look(plan, results, looks))
    return looks


def test_a_race_ends_with_verdicts_that_stand_with_the_numbers_of_their_look(results):
    looks = whole_race(PLAN, results)
    last = looks[-1]
    assert [own.verdict for own in last.comparisons] == ["better", "within", "better"]
    assert {own.status for own in last.policies} == {"settled"}
    for own in last.comparisons:
        assert own.low <= own.estimate <= own.high
    assert last.comparisons[0].low >= 0
    for before, after in itertools.pairwise(looks):
        for own, later in zip(before.comparisons, after.comparisons, strict=True):
            assert own.verdict == "open" or later == own


def test_a_look_goes_through_json_unchanged(results):
    look = take_look(PLAN, results)
    read = LOOK.validate_python(json.loads(json.dumps(LOOK.dump_python(look, mode="json"))))
    assert read == look
    assert take_look(PLAN, results, [read]) == take_look(PLAN, results, [look])


def test_seeds_that_the_plan_has_not_asked_for_change_nothing(results):
    assert take_look(PLAN, results) == take_look(PLAN, {name: own[:2] for name, own in results.items()})


def test_another_plan_missing_seeds_and_looks_after_the_end_are_refused(results):
    first = take_look(PLAN, results)
    with pytest.raises(ValueError, match="another plan"):
        take_look(replace(PLAN, margin=0.1), results, [first])
    with pytest.raises(ValueError, match="K100 has 1 seeds of the 2"):
        take_look(PLAN, results | {"K100": results["K100"][:1]})
    with pytest.raises(ValueError, match="was the last"):
        take_look(PLAN, results, whole_race(PLAN, results))


def test_what_the_seeds_left_cannot_settle_gets_none():
    rng = np.random.default_rng(1)
    results = {name: answered(rng, accuracy, shared=0.0) for name, accuracy in (("K0", 0.5), ("K100", 0.54))}
    plan = Plan((2, 3, 5), (Asked("K=0", "K100", "K0"),), margin=0.001, alike=("K0", "K100"))
    last = whole_race(plan, results)[-1]
    assert last.comparisons[0].verdict == "given up"
    assert {own.status for own in last.policies} == {"not worth going on"}


@pytest.mark.parametrize(
    ("p_values", "rejected", "holm", "hochberg"),
    [  # at 6 %, over three comparisons of the family
        ([0.05, 0.055, 0.06], 0, 0.02, 0.06),  # Holm rejects none, Hochberg all, because the largest is at most 6 %
        ([0.02, 0.03, 0.07], 0, 0.06, 0.03),  # both reject two; Holm then tests the last one at 6 %
        ([0.01, 0.03, 0.06], 0, 0.06, 0.06),  # all
        ([0.021, 0.031, 0.07], 0, 0.02, 0.02),  # none
        ([0.021, 0.07], 1, 0.06, 0.03),  # one of two, with one rejected before
        ([0.031, 0.05], 1, 0.03, 0.06),
        ([], 3, None, None),
    ],
)
def test_steps_within_a_look(p_values, rejected, holm, hochberg):
    for steps, levels in (("holm", holm), ("hochberg", hochberg)):
        found = stepped(steps, dict(enumerate(p_values)), rejected, lambda i, before: 0.06 / (3 - before))
        assert found == pytest.approx(dict.fromkeys(range(len(p_values)), levels))


def test_a_plan_without_steps_was_written_with_hochbergs():
    assert Plan(PLAN.looks, PLAN.asked, PLAN.margin).steps == "hochberg"


def errs(error, races=100):
    """Races of two equal policies that call them different, and those with an interval that misses 0."""
    rng, wrong, missed = np.random.default_rng(0), 0, 0
    plan = Plan((8, 11, 14, 16), (Asked("K=0", "K100", "K0"),), margin=0.0, error=error, futility=0, alike=NAMES[:2])
    for _ in range(races):
        shift = rng.normal(0, 0.05, (2, 16))
        results = {
            name: np.concatenate([answered(rng, 0.5 + own, 1, 600, 0.9) for own in seeds])
            for name, seeds in zip(NAMES, shift, strict=False)
        }
        every = [own for look in whole_race(plan, results) for own in look.comparisons]
        wrong += any(own.verdict in ("better", "worse") for own in every)
        missed += any(not own.low <= 0 <= own.high for own in every)
    return wrong, missed


def test_equal_policies_are_seldom_called_different_at_any_look():
    """Four looks at 5 %: 15 or more of 100 races err in one of 10,000 such tests."""
    assert max(errs(0.05)) < 15 <= binom.isf(1e-4, 100, 0.05) + 1
    assert min(errs(0.3)) > 15  # so the test sees an error that is too large


def test_a_beaten_policy_gets_no_further_seeds_where_it_is_a_contender():
    rng = np.random.default_rng(0)
    results = {"K0": answered(rng, 0.8), "K100": answered(rng, 0.5), "K300": answered(rng, 0.52, shared=0.5)}
    asked = (Asked("K=0", "K100", "K0"), Asked("pairs", "K300", "K100"))
    last = whole_race(Plan((2, 3, 5), asked, margin=0.001, alike=NAMES), results)[-1]
    assert [own.verdict for own in last.comparisons] == ["worse", "given up"]
    why = {own.policy: own.why for own in last.policies}
    assert why["K100"] == "it is worse than another"
