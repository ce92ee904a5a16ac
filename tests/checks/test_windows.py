"""Token budgets and the windows of models, as a run is planned."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from g2d.checks.load import load
from g2d.checks.requirements import require_windows
from g2d.grid.grid import Grid
from g2d.settings import ConfigError
from tests.configs import MINIMAL

SHORT = {"max_completion_length": 48}
FITS: dict[str, Any] = dict.fromkeys(("calibration", "harvest", "evaluation", "warmup"), SHORT)
LONG = {"max_completion_length": 300}
SEMI_ONLINE = {"regime": "semi_online_dpo", "steps": [2], "reference": "base", **SHORT}


def mistakes(**changes: Any) -> list[str]:
    try:
        require_windows(Grid(load(MINIMAL | FITS | changes)))
    except ConfigError as error:
        return str(error).splitlines()
    return []


def test_a_budget_that_fills_the_window_is_named_with_its_key() -> None:
    assert mistakes() == []
    assert mistakes(harvest={"max_completion_length": 255}) == []  # whether it fits, the prompts decide
    assert mistakes(harvest={"max_completion_length": 256}) == [
        "harvest.max_completion_length=256 leaves no room for a prompt in the 256 tokens that demo can hold: lower it, "
        "to at most 255 less the tokens of the longest prompt"
    ]


@pytest.mark.parametrize(
    ("key", "changes"),
    [
        ("calibration", {"calibration": LONG}),
        ("evaluation", {"evaluation": LONG}),
        ("warmup", {"warmup": LONG}),
        ("regimes.online", {"regimes": {"online": SEMI_ONLINE | LONG}}),
        (
            "ablations.long.warmup",
            {"ablations": {"long": {"steps": "all", "warmup": {"max_completion_length": 1024}, "policies": ["grpo"]}}},
        ),
        (
            "harvest",
            {"models": {"demo": {"source": "embedded", "settings": {"harvest": {"max_completion_length": 300}}}}},
        ),
    ],
)
def test_every_kind_of_completion_is_looked_at(key: str, changes: dict[str, Any]) -> None:
    [line] = mistakes(**changes)
    assert line.startswith(f"{key}.max_completion_length=")


def test_a_warm_up_without_steps_is_not_refused() -> None:
    assert mistakes(warmup={"max_completion_length": 2048, "steps": [0]}) == []


def test_context_lengths_are_read_from_local_and_cached_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    revision = "0" * 40
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    cached = tmp_path / f"models--org--name/snapshots/{revision}"
    hub = {"models": {"demo": {"source": "hub", "id": "org/name", "revision": revision}}}
    local = {"models": {"demo": {"source": "local", "path": str(cached)}}}
    long = {"evaluation": {"max_completion_length": 4096}}
    for models in (hub, local):
        assert mistakes(**models, **long) == []  # nothing is known of it
    cached.mkdir(parents=True)
    for window, n in ((4096, 1), (8192, 0), (None, 0)):
        (cached / "config.json").write_text(json.dumps({"max_position_embeddings": window}))
        for models in (hub, local):
            assert len(mistakes(**models, **long)) == n
    (cached / "config.json").write_text("{")  # whoever loads the model refuses it
    assert mistakes(**local, **long) == []
