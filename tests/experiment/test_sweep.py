"""The sweep: which candidates there are, what is left to a choice, what is chosen, and who pays."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from g2d.experiment import grid
from g2d.experiment.arms import Arm
from g2d.experiment.checks import tuning_keys
from g2d.experiment.config import Config, load
from g2d.experiment.grid import candidate_policies
from g2d.experiment.keys import PolicyKey
from g2d.experiment.sweep import Candidate, candidates, with_choice, with_choices
from g2d.graph.build import build
from g2d.graph.job import Job
from g2d.jobs.cost import Cost
from g2d.problems import Problem
from g2d.problems.subsets import hold_out
from g2d.regimes.grpo.keys import Warmup
from g2d.regimes.offline.dpo import Dpo
from g2d.regimes.on_policy.semi_online_dpo import SemiOnlineDpo
from g2d.report.sweep import sweep_sentences
from g2d.settings import ConfigError
from g2d.tables.choices import best, candidate_table, edge_of, sweep_costs
from tests.experiment.test_config import MINIMAL
from tests.frames import groups

ENTRIES = {
    "rft": {"regime": "rft", "steps": [0, 2]},
    "online": {"regime": "semi_online_dpo", "steps": [2, 6], "prompts_per_update": 4},
}


def configured(sweep: dict[str, Any] | None, **changes: Any) -> Config:
    common = {
        "seeds": [3, 4],
        "pool": MINIMAL["pool"] | {"n": 100},
        "training_set": {"n": 60},
        "warmup": {"steps": [0, 2, 4], "horizon": 8},
        "regimes": ENTRIES,
    }
    return load(MINIMAL | common | ({"sweep": {"development": 20} | sweep} if sweep else {}) | changes)


def trained(config: Config, arm: str, k: int) -> Job:
    """The job that trains a policy of the first seed."""
    jobs = [job for job in build(config).values() if job.arm is not None and job.arm.name == arm]
    return next(job for job in jobs if (job.wildcards.seed, job.wildcards.k) == ("3", str(k)))


def settings_of(config: Config, arm: str, k: int) -> Any:
    return trained(config, arm, k).params["settings"]


def choices(config: Config, arm: str, k: int) -> Any:
    return trained(config, arm, k).inputs["choice"]


RATES = {"learning_rate": [1e-3, "1e-4"]}


def test_candidates_are_new_settings_at_the_largest_k() -> None:
    config = configured({"regimes": {"warmup": RATES, "dpo": RATES, "rft": RATES, "online": RATES}, "at": {"dpo": 0}})
    folders = [key.folder.removeprefix("demo/seed3/") for _, key in candidate_policies(config)]
    assert folders == [
        *(f"warmup@learning_rate-{rate}/grpo/g2/k4" for rate in (0.0001, 0.001)),
        *(f"dpo@learning_rate-{rate}/g0/k0" for rate in (0.0001, 0.001)),
        *(f"rft@learning_rate-{rate}/g2/k2" for rate in (0.0001, 0.001)),
        *(f"online@learning_rate-{rate}/g8/k6" for rate in (0.0001, 0.001)),
    ]
    without = configured(None)
    assert grid.policies(config) == grid.policies(without)
    assert candidate_policies(without) == []


def test_every_combination_is_tried_in_ascending_order() -> None:
    config = configured({"regimes": {"dpo": RATES | {"epochs": [3, 1]}}, "seed": 7})
    tried = [dict(candidate.values) for candidate in candidates(config)]
    assert tried == [{"learning_rate": rate, "epochs": epochs} for rate in (1e-4, 1e-3) for epochs in (1, 3)]
    assert {key.seed for _, key in candidate_policies(config)} == {7}


def test_an_online_candidate_has_the_schedule_of_its_entry() -> None:
    config = configured({"regimes": {"online": RATES}, "at": {"online": 2}})
    settings = settings_of(config, "online@learning_rate-0.001", 2)["semi_online_dpo"]
    assert (settings["horizon"], settings["learning_rate"]) == (6, 1e-3)


def test_keys_that_decide_which_files_there_are_cannot_be_swept() -> None:
    assert set(tuning_keys(Dpo)) == {"beta", "epochs", "learning_rate", "max_steps", "nll_weight"}
    structure = {"steps", "horizon", "responses", "group_sizes", "prompts_per_update", "sync_every", "iterations"}
    assert not structure & {*tuning_keys(Warmup), *tuning_keys(SemiOnlineDpo)}
    assert {"epsilon", "learning_rate"} <= set(tuning_keys(Warmup))


# ---------------------------------------------------------------------------------------------------------- params


def test_a_training_waits_for_the_choice_and_a_candidate_does_not() -> None:
    steep = {"steps": [2], "dpo": {"learning_rate": 1e-2}}
    hot = {"steps": [2], "warmup": {"temperature": 1.1}, "policies": ["dpo", "grpo"]}
    ablations = {"own": steep, "hot": hot, "ipo": {"steps": [2], "dpo": {"loss": "ipo"}}}
    config = configured({"regimes": {"warmup": RATES, "dpo": RATES, "rft": RATES}}, ablations=ablations)
    for arm in ("dpo", "ipo", "hot/dpo"):
        assert choices(config, arm, 2) == ["results/demo/sweep/dpo.json"]
        assert "learning_rate" not in settings_of(config, arm, 2)["dpo"]
    for arm, k, rate in (("own", 2, 1e-2), ("dpo@learning_rate-0.001", 4, 1e-3)):
        assert choices(config, arm, k) == []
        assert settings_of(config, arm, k)["dpo"]["learning_rate"] == rate
    for arm in ("grpo", "hot/grpo"):
        assert choices(config, arm, 2) == ["results/demo/sweep/warmup.json"]
        assert "learning_rate" not in settings_of(config, arm, 2)["warmup"]
    assert choices(config, "warmup@learning_rate-0.001/grpo", 4) == []
    assert choices(config, "rft", 2) == ["results/demo/sweep/rft.json"]
    assert choices(config, "online", 6) == choices(config, "rft@learning_rate-0.001", 2) == []


def test_an_ablation_has_a_separate_choice() -> None:
    stale = {"steps": [4], "warmup": {"updates_per_generation": 2}, "policies": ["grpo"]}
    ablations = {"stale": stale, "ipo": {"steps": [2], "dpo": {"loss": "ipo"}}}
    sweep = {"warmup": RATES, "stale": {"epsilon": [0.1, 0.4]}, "ipo": {"beta": [0.1, 0.5], "learning_rate": [1, 2]}}
    config = configured({"regimes": sweep | {"dpo": RATES}}, ablations=ablations)
    sweeps = "results/demo/sweep"
    assert choices(config, "stale/grpo", 4) == [f"{sweeps}/stale.json", f"{sweeps}/warmup.json"]
    assert not {"epsilon", "learning_rate"} & set(settings_of(config, "stale/grpo", 4)["warmup"])
    # A candidate tries its own keys and has the rate that was chosen for all warm-ups.
    candidate = "stale@epsilon-0.4/grpo"
    assert choices(config, candidate, 4) == [f"{sweeps}/warmup.json"]
    settings = settings_of(config, candidate, 4)["warmup"]
    assert (settings["epsilon"], settings["updates_per_generation"], "learning_rate" in settings) == (0.4, 2, False)
    assert choices(config, "ipo", 2) == [f"{sweeps}/ipo.json"]
    folders = [key.folder for candidate, key in candidate_policies(config) if candidate.swept in ablations]
    assert folders[0] == "demo/seed3/stale@epsilon-0.1/grpo/g2/k4"
    assert folders[-1] == "demo/seed3/ipo@beta-0.5@learning_rate-2.0/g2/k2"
    chosen = with_choices(config, {"stale": {"epsilon": 0.4}, "ipo": {"beta": 0.5}})
    assert chosen.warmup_of("stale").epsilon == 0.4
    assert (chosen.ablation_dpo("ipo").beta, chosen.ablation_dpo("ipo").loss) == (0.5, "ipo")


def test_neutral_values_of_an_ablation_are_kept() -> None:
    ablations = {"plain": {"steps": [2], "dpo": {"nll_weight": 0.0, "loss": "ipo"}}}
    config = configured({"regimes": {"dpo": RATES | {"nll_weight": [0.0, 1.0]}}}, ablations=ablations)
    settings = settings_of(config, "plain", 2)
    assert settings["dpo"]["nll_weight"] == 0
    choice = {"section": "dpo", "settings": {"learning_rate": 1e-3, "nll_weight": 1.0}}
    filled = with_choice(settings, choice)["dpo"]
    assert (filled["learning_rate"], filled["nll_weight"], filled["loss"]) == (1e-3, 0, "ipo")


def test_a_chosen_configuration_has_the_choice() -> None:
    plain = configured(None)
    assert settings_of(plain, "dpo", 2)["dpo"] == Dpo().params()
    config = with_choices(plain, {"warmup": {"learning_rate": 1e-2}, "rft": {"epochs": 5}})
    assert (config.warmup.learning_rate, config.regimes["rft"].epochs, config.dpo) == (1e-2, 5, Dpo())


HELD_OUT = MINIMAL["benchmarks"]["held-out"]
TUNED = {"demo": {"source": "embedded", "settings": {"dpo": {"learning_rate": 1e-3}}}}
TOO_MANY = MINIMAL["pool"] | {"split": "development", "n": 10**6}
OWN = {"own": {"steps": [2], "dpo": {"beta": 0.2}}}


@pytest.mark.parametrize(
    ("sweep", "others", "message"),
    [
        ({"regimes": {}}, {}, "sweep: its problems are not used: add keys to sweep.regimes"),
        ({"regimes": {"kto": RATES}}, {}, "sweep.regimes.kto: is no section, ablation or entry of regimes: choose"),
        ({"regimes": {"dpo": {}}}, {}, "sweep.regimes.dpo: name a key with the values to try"),
        ({"regimes": {"dpo": {"rate": [1, 2]}}}, {}, "sweep.regimes.dpo.rate: not a number that can be tuned in dpo"),
        ({"regimes": {"online": {"responses": [2, 4]}}}, {}, "sweep.regimes.online.responses: not a number that"),
        ({"regimes": {"dpo": {"beta": []}}}, {}, r"sweep.regimes.dpo.beta: \[\] leaves nothing to choose"),
        ({"regimes": {"dpo": {"beta": [0.1]}}}, {}, r"sweep.regimes.dpo.beta: \[0.1\] leaves nothing to choose"),
        ({"regimes": {"dpo": {"beta": [0.1, 0.1]}}}, {}, "sweep.regimes.dpo.beta: values repeat"),
        ({"regimes": {"dpo": {"beta": [0.1, -1]}}}, {}, "sweep.regimes.dpo.beta: input should be greater than 0"),
        ({"regimes": {"dpo": {"epochs": [1, 1.5]}}}, {}, "sweep.regimes.dpo.epochs: input should be a valid integer"),
        ({"regimes": {"dpo": RATES}, "at": {"dpo": 3}}, {}, r"sweep.at.dpo: K=3 is not a K of every model \[0, 2, 4\]"),
        ({"regimes": {"warmup": RATES}, "at": {"warmup": 0}}, {}, "sweep.at.warmup: K=0 is not a K of every"),
        ({"regimes": {"dpo": RATES}, "at": {"rft": 2}}, {}, "sweep.at.rft: is not swept: choose from dpo"),
        ({"regimes": {"dpo": RATES}, "development": 41}, {}, "sweep.development: 41 problems held out of the pool's"),
        ({"regimes": {"dpo": RATES}, "development": 0}, {}, "sweep.development: "),
        ({"regimes": {"dpo": RATES}}, {"benchmarks": {"Development": HELD_OUT}}, "benchmarks.Development: the name is"),
        ({"regimes": {"dpo": RATES}}, {"benchmarks": {"pool.training": HELD_OUT}}, "benchmarks.pool.training: the"),
        (
            {"regimes": {"dpo": RATES}},
            {"models": TUNED},
            "models.demo.settings.dpo.learning_rate: the sweep chooses it: drop one",
        ),
        ({"regimes": {"dpo": RATES}, "development": TOO_MANY}, {}, "sweep.development.n: "),
        ({"regimes": {"own": {"beta": [0.1, 0.3]}}}, {"ablations": OWN}, "ablations.own.dpo.beta: the sweep chooses"),
    ],
)
def test_a_mistake_is_named(sweep: dict[str, Any], others: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        configured(sweep, **others)


# ---------------------------------------------------------------------------------------------------------- the choice


def tried(*accuracies: int) -> Any:
    """Candidates of ascending rates that answered so many of 4 problems, and the table of them."""
    candidates = [Candidate("dpo", (("learning_rate", 10.0**-n),), 2) for n in range(len(accuracies), 0, -1)]
    keys = [PolicyKey.of("demo", Arm(each.name, "dpo", "ablation"), (2, 2), 0) for each in candidates]
    answers = [groups([(int(problem < right), 1) for problem in range(4)]) for right in accuracies]
    return candidate_table(list(zip(candidates, keys, strict=True)), answers)


def test_the_best_is_chosen_and_of_equals_the_smallest() -> None:
    table = tried(1, 3, 3)
    assert list(table["accuracy"]) == [0.25, 0.75, 0.75]
    assert list(table["chosen"]) == [False, True, False]
    assert (best(table), table["settings"][1], table["edge"][1]) == (1, "learning_rate=0.01", None)
    assert list(table["n_problems"]) == [4] * 3
    assert all(table["ci_low"] < table["accuracy"]) and all(table["accuracy"] < table["ci_high"])


def test_a_choice_at_the_end_of_the_list_gives_a_warning() -> None:
    assert tried(1, 2, 3)["edge"][2] == "learning_rate is the largest tried"
    assert tried(3, 2, 1)["edge"][0] == "learning_rate is the smallest tried"
    pair = [Candidate("dpo", (("beta", beta), ("epochs", 1)), 2) for beta in (0.1, 0.2, 0.3)]
    assert edge_of(pair[1], pair) == "epochs is the smallest tried"


def test_candidates_that_answered_other_problems_are_not_compared() -> None:
    key = PolicyKey("demo", "dpo", 2, 2, 0)
    pairs = [(Candidate("dpo", (("beta", beta),), 2), key) for beta in (0.1, 0.2)]
    with pytest.raises(ValueError, match="dpo: candidates answered different problems"):
        candidate_table(pairs, [groups([(1, 1)]), groups([(1, 1), (0, 1)])])


def test_the_choice_is_shown_with_its_alternatives() -> None:
    sentences = sweep_sentences(tried(1, 3, 3))
    assert len(sentences) == 1
    assert "For dpo, learning_rate=0.01 was chosen out of 3 tried at K=2: it had 0.750 [" in sentences[0]
    assert sentences[0].endswith("right, as had 1 of the larger ones.")
    assert "largest tried: a better one may lie beyond" in " ".join(sweep_sentences(tried(1, 2, 3)))


COST = Cost("a", "train_dpo", 1.0, 1.0, 1, "cpu", 1.0, 0, 0)


def test_costs_of_a_sweep_count_its_own_jobs_once() -> None:
    shared, candidate, answers = (replace(COST, job=name) for name in ("harvest", "candidate", "evaluation"))
    keys = [PolicyKey.of("demo", Arm(f"dpo@{n}", "dpo", "ablation"), (2, 2), 0) for n in range(2)]
    other = replace(candidate, job="other")
    bills = sweep_costs({keys[0]: [shared, candidate, answers], keys[1]: [shared, other, answers]}, charged=[shared])
    assert [(key.label, key.model, bill) for key, bill in bills.items()] == [
        ("sweep", "demo", [candidate, answers, other])
    ]


def test_what_is_held_out_is_the_same_draw_whatever_the_order_and_takes_its_copies_along() -> None:
    pool = [Problem(f"p{n}", f"What is {n % 20} + 1?", "1", 1, None, "test") for n in range(30)]
    development, rest = hold_out(pool, 5)
    assert len(development) == 5
    assert not {problem.prompt for problem in development} & {problem.prompt for problem in rest}
    assert {problem.problem_id for problem in hold_out(pool[::-1], 5)[0]} == {p.problem_id for p in development}
    assert {p.problem_id for p in development} < {p.problem_id for p in hold_out(pool, 6)[0]}
    with pytest.raises(ValueError, match=r"sweep.development: 30 problems held out of 30 leave none"):
        hold_out(pool, 30)
