"""Groups: the rollouts of one prompt in an update, and their pairs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Literal, get_args

from pydantic import Field

from g2d.rewards.reward import Status
from g2d.rollouts.pairs import all_pairs, is_binary, is_open_ended, labels, lengths, one_pair
from g2d.settings import Section, key

if TYPE_CHECKING:
    import pandas as pd

Metrics = dict[str, float | None]  # None without such rollouts
Which = Literal["one", "all"]
RolloutsAtOnce = Annotated[int, Field(ge=2)] | Literal["auto"]
ROLLOUTS_AT_ONCE = "Rollouts per forward pass; auto: as many as fit on the GPU, else 8."


class GroupLoss(Section):
    """Loss on groups of rollouts: DPO's, with optional terms (arXiv 2506.21495, sections 3 and 4)."""

    pairs: Which = key("one", "One random pair per prompt, or all (GroupDPO).")
    beta: float = key(0.1, "Strength of the reference policy.", paper="0.1 on mathematics", gt=0)
    nll_weight: float = key(
        0.0, "Weight of the chosen rollouts' negative log-likelihood per token.", paper="0, and 1", ge=0
    )
    entropy_coefficient: float = key(
        0.0, "Weight of an entropy bonus: mean token entropy of chosen rollouts.", paper="0, and 1e-4 to 5e-4", ge=0
    )
    grpo_weight: float = key(
        0.0, "alpha: weight of GRPO's loss on the same, on-policy groups (equation 1).", paper="0, 0.001 and 0.01", ge=0
    )
    margin: float | None = key(None, "Scalar reward: smallest difference of a pair.", gt=0, neutral=None)
    normalise: Literal["pairable", "asked"] = key(
        "pairable", "Divide the loss by the prompts with a pair, or by all (the paper's code)."
    )


@dataclass(frozen=True, slots=True)
class Group:
    problem_id: str
    prompt: tuple[int, ...]
    completions: tuple[tuple[int, ...], ...]
    pairs: tuple[tuple[int, int], ...]  # (chosen, rejected)
    advantages: tuple[float, ...]  # reward minus the prompt's mean (equation 1; not scaled)

    @property
    def chosen(self) -> list[int]:
        return sorted({right for right, _ in self.pairs})

    @property
    def chosen_tokens(self) -> int:
        return sum(len(self.completions[i]) for i in self.chosen)

    @property
    def width(self) -> int:
        return len(self.prompt) + max(map(len, self.completions))


def groups(
    rollouts: pd.DataFrame,
    names: Iterable[str],
    *,
    which: Which,
    seed: int,
    whole: bool = False,
    margin: float | None = None,
) -> list[Group]:
    """Form the groups of the pairable prompts among `names`, in their order.

    Args:
        which: "one" is the pair that `build_pairs` samples with this seed.
        whole: also keep rollouts that are in no pair.
        margin: as in `labels`.
    """
    formed = []
    labelled = rollouts.assign(label=labels(rollouts, margin)).dropna(subset="reward")
    by_problem = {name: rows.sort_values("sample") for name, rows in labelled.groupby("problem_id", sort=False)}
    for name in names:
        rows = by_problem.get(name)
        if rows is None:  # without any reward
            continue
        rewards = dict(zip(rows["sample"], rows["reward"], strict=True))
        right = list(rows["sample"][rows["label"].eq(True).fillna(False)])
        wrong = list(rows["sample"][rows["label"].eq(False).fillna(False)])
        if not right or not wrong:
            continue
        pairs = all_pairs(name, right, wrong, seed) if which == "all" else [one_pair(name, right, wrong, seed)]
        used = sorted(rewards if whole else set(chain.from_iterable(pairs)))
        at = {sample: i for i, sample in enumerate(used)}
        drawn = dict(zip(rows["sample"], rows["completion_ids"], strict=True))
        mean = sum(rewards.values()) / len(rewards)
        formed.append(
            Group(
                problem_id=name,
                prompt=tuple(rows["prompt_ids"].iloc[0].tolist()),
                completions=tuple(tuple(drawn[sample].tolist()) for sample in used),
                pairs=tuple((at[chosen], at[rejected]) for chosen, rejected in pairs),
                advantages=tuple(rewards[sample] - mean for sample in used),
            )
        )
    return formed


def in_passes(update: Sequence[Group], rollouts: int, tokens: int = 0) -> Iterator[list[Group]]:
    """Split groups into passes of at most `rollouts` rollouts, or `tokens` padded tokens."""
    longest_first = sorted(update, key=lambda group: -group.width)
    batch: list[Group] = []
    for group in longest_first if tokens else update:
        size = sum(len(member.completions) for member in [*batch, group])
        if not batch:
            is_full = False
        elif tokens:
            is_full = size * batch[0].width > tokens
        else:
            is_full = size > rollouts
        if is_full:
            yield batch
            batch = []
        batch.append(group)
    if batch:
        yield batch


def summary(rollouts: pd.DataFrame, pairable: Sequence[Group]) -> Metrics:
    """Return the metrics of an update's rollouts, and of the groups with a pair."""
    n_prompts = rollouts["problem_id"].nunique()
    metrics: Metrics = {
        "prompts": n_prompts,
        "reward": float(rollouts["reward"].mean()),
        "completions/mean_length": float(rollouts["token_count"].mean()),
        "completions/clipped_ratio": float((rollouts["finish_reason"] == "length").mean()),
    }
    if not is_binary(rollouts["reward"]):
        best, worst = lengths(rollouts)
        metrics["completions/mean_length_best"] = best
        metrics["completions/mean_length_worst"] = worst
    if "reward_status" in rollouts:
        for status in get_args(Status):
            metrics[f"rewards/{status}"] = float((rollouts["reward_status"] == status).mean())
    if is_open_ended(rollouts).any():
        metrics |= _by_kind(rollouts)
    metrics["pairs"] = sum(len(group.pairs) for group in pairable)
    metrics["pairable"] = len(pairable) / n_prompts
    return metrics


def _by_kind(rollouts: pd.DataFrame) -> Metrics:
    kinds = is_open_ended(rollouts).map({True: "open_ended", False: "verifiable"})
    metrics: Metrics = {}
    for kind, rows in rollouts.groupby(kinds):
        judged = float(rows["reward"].notna().mean())
        metrics |= {
            f"reward/{kind}": float(rows["reward"].mean()),
            f"completions/mean_length/{kind}": float(rows["token_count"].mean()),
            f"rewards/judged/{kind}": judged,
            f"rewards/without/{kind}": 1 - judged,
        }
    return metrics
