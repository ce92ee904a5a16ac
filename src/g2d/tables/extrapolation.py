"""Extrapolated policies against trained ones at the same K, and the linearity of the warm-up's weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from g2d.analysis.crossed import error_of_difference
from g2d.analysis.linearity import LINEAR, r_squared
from g2d.analysis.statistics import LEVEL
from g2d.experiment.keys import PolicyKey
from g2d.jobs.files import read_json
from g2d.tables.evaluations import ROW, Evaluations, by_grid, by_policy, named
from g2d.tables.families import Paired
from g2d.tables.frames import Rows, columns, mean, table_of

KINDS = ("extrapolated", "dpo")  # other trainings on an extrapolated harvest differ from DPO in more than K
ROWS = 64  # rows of each layer's weights that are sampled
EXTRAPOLATION_COLUMNS = columns(
    *(ROW, "last_trained n_seeds n_problems accuracy trained difference ci_low ci_high p_value family_size p_holm"),
    "margin_shown margin p_enough enough device_hours trained_device_hours",
    last_trained="int64",
)
LINEARITY_COLUMNS = columns(
    "model group_size seed K n_checkpoints n_weights linear", n_checkpoints="int64", n_weights="int64"
)


@table_of(EXTRAPOLATION_COLUMNS)
def extrapolation_table(evaluations: Evaluations, device_hours: Mapping[PolicyKey, float], margin: float) -> Rows:
    """A row per extrapolated policy and DPO on its harvest, if the trained policy of that K was evaluated. Tests and
    bounds are corrected for the rows of a model and benchmark."""
    grouped = by_policy(evaluations)
    for (_, benchmark), rows in by_grid(grouped).items():
        pairs = [(at, (at[0].reference, benchmark)) for at in rows if at[0].arm.last_trained is not None]
        if not (family := [(at, trained) for at, trained in pairs if at[0].kind in KINDS and trained in grouped]):
            continue
        answers = Paired(grouped, rows)
        for (at, trained), test in zip(family, answers.tested(family), strict=True):
            both, paired = answers.pair(at, trained), test.n_seeds > 1
            pool = answers.pool(at, trained) if paired else None
            error = error_of_difference(both[0] - both[1], pool, paired, answers.clusters)
            bound = -error.interval(2 * LEVEL / len(family))[0]
            p = min(1.0, len(family) * error.p_above(-margin))
            yield named(grouped[at], benchmark) | {
                **{"last_trained": at[0].arm.last_trained, "n_seeds": test.n_seeds, "n_problems": test.n_problems},
                **{"accuracy": both[0].mean(), "trained": both[1].mean(), "difference": test.difference},
                **{"ci_low": test.ci_low, "ci_high": test.ci_high, "p_value": test.p_value},
                **{"family_size": test.family_size, "p_holm": test.p_holm},
                **{"margin_shown": max(0.0, bound), "margin": margin, "p_enough": p, "enough": p <= LEVEL},
                "device_hours": mean(device_hours.get(key) for key in grouped[at]),
                "trained_device_hours": mean(device_hours.get(key) for key in grouped[trained]),
            }


@table_of(LINEARITY_COLUMNS)
def linearity_table(chains: Mapping[PolicyKey, Mapping[int, Path]]) -> Rows:
    """A row per warm-up and K: the share of weights whose R^2 over the checkpoints up to that K is above `LINEAR`.

    M0 counts as a checkpoint of an adapter, but not of full weights.

    Args:
        chains: files of the weights by K, by the last policy of each warm-up.
    """
    for last, files in chains.items():
        steps = sorted(files)
        counts = {k: np.zeros(2, dtype=int) for k in steps}
        for values, with_m0 in _layers([files[k] for k in steps]):
            at = np.array([0] * with_m0 + steps)
            for n in range(3, len(at) + 1):
                r2 = r_squared(at[:n], values[:n])
                counts[int(at[n - 1])] += (int((r2 > LINEAR).sum()), int(np.isfinite(r2).sum()))
        for place, k in enumerate(steps, 1):
            linear, n_weights = map(int, counts[k])
            if n_weights:
                names = {"model": last.model, "group_size": last.group_size, "seed": last.seed, "K": k}
                n_checkpoints = place + with_m0
                yield names | {"n_checkpoints": n_checkpoints, "n_weights": n_weights, "linear": linear / n_weights}


def _layers(files: list[Path]) -> Iterator[tuple[np.ndarray, bool]]:
    """Yield each layer's first rows at all checkpoints, (n, weights), and whether M0 is the first of them."""
    from safetensors import safe_open

    checkpoints = [safe_open(file, framework="pt") for file in files]
    names = checkpoints[0].keys()
    if not (settings := files[0].with_name("adapter_config.json")).is_file():
        for name in names:
            rows = [weights.get_slice(name)[:ROWS].float().flatten() for weights in checkpoints]
            yield np.stack(rows), False
        return
    scale = read_json(settings)["lora_alpha"] / read_json(settings)["r"]
    for a in (name for name in names if ".lora_A." in name):
        b = a.replace(".lora_A.", ".lora_B.")
        both = [(weights.get_tensor(a).float(), weights.get_slice(b)[:ROWS].float()) for weights in checkpoints]
        changes = [(scale * of_b @ of_a).flatten().numpy() for of_a, of_b in both]
        yield np.stack([np.zeros_like(changes[0]), *changes]), True
