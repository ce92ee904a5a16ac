"""Extrapolated policies: the weights are exactly on the line through two checkpoints, and tables worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from peft import PeftModel
from safetensors.torch import save_file

from g2d.analysis.linearity import r_squared
from g2d.experiment.arms import Arm
from g2d.experiment.keys import PolicyKey
from g2d.jobs.files import read_json, sha256, write_json
from g2d.policies import Policy, load_model
from g2d.policies.policy import load_base
from g2d.policies.settings import ALL_FILES, Lora
from g2d.regimes.extrapolated import Extrapolated, extrapolate
from g2d.regimes.run.job import TrainingJob
from g2d.regimes.run.weights import save_trained
from g2d.report.extrapolation import extrapolation_sentences
from g2d.rollouts.rollout import to_frame
from g2d.tables.extrapolation import extrapolation_table, linearity_table
from tests.frames import rollout
from tests.models import adapted, tiny_policy

NONE = Lora.model_validate("none")


def settings(first: int, last: int, *to: int) -> Extrapolated:
    return Extrapolated.model_validate({"regime": "extrapolated", "from": [first, last], "to": list(to)})


def extrapolated(policies: list[Policy], of: Extrapolated, work: Path, lora: Lora) -> Policy:
    work.mkdir()
    job = TrainingJob(tiny_policy(), policies, of, seed=0, work=work, lora=lora, k=of.steps[0])
    assert extrapolate(job).log == []
    return replace(tiny_policy(), **lora.folders(work), weights_sha256=sha256(work / lora.files[0]))


def weights(policy: Policy) -> dict[str, torch.Tensor]:
    return load_model(policy, exact=True).state_dict()


def require_on_the_line(policy: Policy, first: Policy, last: Policy, ahead: float) -> None:
    one, two = weights(first), weights(last)
    changed = 0
    for name, ours in weights(policy).items():
        expected = one[name].double() + ahead * (two[name].double() - one[name].double())
        torch.testing.assert_close(ours.double(), expected, rtol=0, atol=2e-6)
        changed += not torch.equal(ours, two[name])
    assert changed


def test_an_adapter_from_m0_is_scaled(tmp_path: Path) -> None:
    base = tiny_policy()
    last = adapted(base, tmp_path / "last", std=0.1, seed=1)
    policy = extrapolated([base, last], settings(0, 50, 80), tmp_path / "work", Lora())
    require_on_the_line(policy, base, last, 80 / 50)
    assert read_json(Path(policy.adapter, "adapter_config.json")) == read_json(tmp_path / "last/adapter_config.json")


def test_two_adapters_are_concatenated_as_by_peft(tmp_path: Path) -> None:
    base = tiny_policy()
    first, last = (adapted(base, tmp_path / str(seed), std=0.1, seed=seed) for seed in (1, 2))
    policy = extrapolated([first, last], settings(50, 100, 175), tmp_path / "work", Lora())
    require_on_the_line(policy, first, last, 125 / 50)
    config = read_json(Path(policy.adapter, "adapter_config.json"))
    assert (config["r"], config["lora_alpha"]) == (2 * Lora().r, 2 * Lora().alpha)

    model = PeftModel.from_pretrained(load_base(base, exact=True), first.adapter, adapter_name="first")
    model.load_adapter(last.adapter, adapter_name="last")
    model.add_weighted_adapter(["first", "last"], [-1.5, 2.5], "peft", combination_type="cat")
    model.set_adapter("peft")
    by_peft, ours = model.merge_and_unload().state_dict(), weights(policy)
    for name, tensor in by_peft.items():
        torch.testing.assert_close(ours[name], tensor, rtol=0, atol=2e-6)


@pytest.mark.parametrize("first", [0, 50])
def test_full_weights(tmp_path: Path, first: int) -> None:
    base = tiny_policy()

    def trained(k: int) -> Policy:
        model, folder = load_base(base, exact=True), tmp_path / str(k) / "weights"
        generator = torch.Generator().manual_seed(k)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
        save_trained(model, folder)
        (folder / "config.json").write_bytes(Path(base.base, "config.json").read_bytes())
        return replace(base, weights=str(folder), weights_sha256=sha256(folder / Path(ALL_FILES[0]).name))

    before, last = trained(first) if first else base, trained(100)
    policy = extrapolated([before, last], settings(first, 100, 150), tmp_path / "work", NONE)
    require_on_the_line(policy, before, last, (150 - first) / (100 - first))


def test_changed_weights_are_refused(tmp_path: Path) -> None:
    last = replace(adapted(tiny_policy(), tmp_path / "last", std=0.1), weights_sha256="0" * 64)
    with pytest.raises(ValueError, match="not the weights"):
        extrapolated([tiny_policy(), last], settings(0, 50, 80), tmp_path / "work", Lora())


# ------------------------------------------------------------------------------------------------------------- tables


def test_r_squared_by_hand() -> None:
    """A line, a parabola's half (slope 2.5, residuals .5, -1, .5), no trend at all, and a weight that never changes."""
    steps = np.array([0.0, 1.0, 2.0])
    values = np.array([[1.0, 3.0, 5.0], [0.0, 1.0, 5.0], [0.0, 1.0, 0.0], [2.0, 2.0, 2.0]]).T
    ours = r_squared(steps, values)
    assert list(ours[:3]) == pytest.approx([1, 12.5 / 14, 0])
    assert np.isnan(ours[3])


def test_linearity_of_a_chain(tmp_path: Path) -> None:
    """One layer with scale 2, A = [1, 1]: weights grow as 2 B. Rows of B: linear, gone again, and constant at 0."""

    def checkpoint(k: int, b: list[float]) -> Path:
        folder = tmp_path / str(k) / "adapter"
        folder.mkdir(parents=True)
        tensors: dict[str, Any] = {"layer.lora_A.weight": torch.ones(1, 2)}
        tensors["layer.lora_B.weight"] = torch.tensor(b)[:, None]
        save_file(tensors, folder / "adapter_model.safetensors")
        write_json(folder / "adapter_config.json", {"r": 1, "lora_alpha": 2})
        return folder / "adapter_model.safetensors"

    chain = {1: checkpoint(1, [1.0, 1.0, 0.0]), 2: checkpoint(2, [2.0, 1.8, 0.0]), 3: checkpoint(3, [3.0, 0.0, 0.0])}
    last = PolicyKey("m", "grpo", 2, 3, 0)
    table = linearity_table({last: chain})
    # Over 0, 1, 2 the second row (0, 1, 1.8) is nearly linear; over 0 to 3 (0, 1, 1.8, 0) it has R^2 = .002.
    assert list(table.K) == [2, 3]
    assert list(table.n_checkpoints) == [3, 4]
    assert list(table.n_weights) == [4, 4]  # two inputs; the third row has no R^2
    assert list(table.linear) == [1.0, 0.5]


N, SAME = 200, 150


def answers(right: int) -> pd.DataFrame:
    return to_frame([rollout(f"p{i:03}", 0, "correct" if i < right else "incorrect", 1) for i in range(N)])


def test_the_table_by_hand() -> None:
    """One seed: the extrapolated policy misses 10 of 200 answers that the trained one has right."""
    trained = PolicyKey("m", "grpo", 2, 100, 0)
    keys = {"regime": "extrapolated", "from": [0, 20], "to": [100, 200]}
    far = Arm("far", "extrapolated", "entry", Extrapolated(**keys))
    predicted, without = (PolicyKey.of("m", far, (2, k), 0) for k in (100, 200))
    base = PolicyKey("m", "base", 0, 0, None)
    right = {base: 80, trained: SAME, predicted: SAME - 10, without: 130}
    hours = {trained: 5.0, predicted: 1.0}
    evaluations = {(key, "test"): answers(n) for key, n in right.items()}
    table = extrapolation_table(evaluations, hours, 0.1)
    (row,) = table.to_dict("records")  # K=200 was not trained
    assert (row["policy"], row["K"], row["last_trained"], row["family_size"]) == ("far", 100, 20, 1)
    assert (row["accuracy"], row["trained"], row["difference"]) == pytest.approx((0.7, 0.75, -0.05))
    # One question gained and one lost are added: 12 of 202 differ, by 10 / 202 on average; 201 degrees of freedom.
    middle, t = 10 / 202, 1.652470
    bound = middle + t * np.sqrt((12 / 202 - middle**2) / 202)
    assert row["margin_shown"] == pytest.approx(bound, rel=1e-5)
    assert row["margin"] == 0.1
    assert row["enough"] == (row["p_enough"] <= 0.05)
    assert row["enough"]
    assert (row["device_hours"], row["trained_device_hours"]) == (1.0, 5.0)
    (sentence,) = extrapolation_sentences(table)
    assert "far (K=100), extrapolated from K=20, is at most 7.8 points worse" in sentence
    assert "at 20\N{NO-BREAK SPACE}% of its device-hours" in sentence
