"""A learning rate far outside the usual range gives a warning in every section; shipped files give none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from g2d.cli import main
from g2d.experiment.config import load, read, read_sources
from g2d.experiment.config_file import read_files
from g2d.experiment.learning_rates import RATES, unusual_rates
from g2d.regimes.catalogue import REGIMES
from tests.experiment.test_config import CONFIG, MINIMAL

REAL = {"models": {"real": {"source": "hub", "id": "a/b", "revision": "0" * 40}}}
SMALL_GRID = {"warmup": {"steps": [0, 2, 4]}, "training_set": {"n": 60}}
FRESH = {"regime": "semi_online_dpo", "steps": [2], "prompts_per_update": 4}


def test_every_regime_has_its_row() -> None:
    assert RATES.keys() == {name for name, regime in REGIMES.items() if regime.phase != "extrapolated"}


@pytest.mark.parametrize("file", sorted(CONFIG.glob("*.yaml")), ids=lambda file: file.stem)
def test_shipped_configurations_have_none(file: Path) -> None:
    assert unusual_rates(read(file)) == []


@pytest.mark.parametrize("names", [["regimes"], ["regimes", "sweep"], ["confounders"], ["controls"]])
def test_the_demonstration_has_none_with_its_overlays(names: list[str]) -> None:
    config = read_sources(read_files(CONFIG / f"{name}.yaml" for name in ("config", *(f"overlays/{n}" for n in names))))
    assert unusual_rates(config) == []
    assert config.sweep is None or set(config.sweep.regimes) == {"warmup", "dpo", *config.regimes}


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"warmup": {"steps": [0, 2, 4], "learning_rate": 1.0}}, "warmup.learning_rate=1 "),
        ({"dpo": {"learning_rate": 1e3}}, "dpo.learning_rate=1000 "),
        ({"dpo": {"learning_rate": 1e-12}}, "dpo.learning_rate=1e-12 "),
        ({"ablations": {"x": {"steps": [2], "dpo": {"learning_rate": 1.0}}}}, "ablations.x.dpo.learning_rate=1 "),
        ({"ablations": {"x": {"steps": [2], "warmup": {"learning_rate": 1.0}}}}, "ablations.x.warmup.learning_rate=1 "),
        ({"regimes": {"x": {"regime": "rft", "steps": [2], "learning_rate": 9}}}, "regimes.x.learning_rate=9 "),
        ({"regimes": {"x": FRESH | {"learning_rate": 1}}}, "regimes.x.learning_rate=1 "),
        (
            {"regimes": {"x": {"regime": "iterative_dpo", "rounds": [1], "dpo": {"learning_rate": 1}}}},
            "regimes.x.learning_rate=1 ",
        ),
        (
            {"sweep": {"development": 20, "regimes": {"warmup": {"learning_rate": [1e-5, 2.0]}}}},
            "sweep.regimes.warmup.learning_rate=2 ",
        ),
    ],
)
@pytest.mark.parametrize("models", [REAL, {}])
def test_a_rate_far_outside_is_named_once(models: dict[str, Any], changes: dict[str, Any], key: str) -> None:
    [sentence] = unusual_rates(load(MINIMAL | SMALL_GRID | models | changes))
    assert sentence.startswith(key)


def test_rates_of_a_tiny_model_are_far_outside_for_a_real_one(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    demonstration = {"dpo": {"learning_rate": 6e-3}, "warmup": {"steps": [2], "learning_rate": 2e-3}}
    assert unusual_rates(load(MINIMAL | SMALL_GRID | demonstration)) == []
    settings = {"settings": {"dpo": {"learning_rate": 1e-5}}}
    file = tmp_path / "my.yaml"
    values = MINIMAL | SMALL_GRID | demonstration | {"models": {"real": REAL["models"]["real"] | settings}}
    file.write_text(yaml.safe_dump(values))
    [sentence] = unusual_rates(read(file))
    assert sentence.startswith(
        "warmup.learning_rate=0.002 (real) is more than 100 times above the rates in use, 1e-06 to"
    )
    assert main(["config", "check", str(file)]) == 0
    assert "note: warmup.learning_rate=0.002 (real)" in capsys.readouterr().err
