"""Selection and order of the prompts of an online training.

Each kind of prompt has the order it would have without the other (arXiv 2506.21495, section 3.3). `retire` leaves out
prompts without a learning signal.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, Literal, Self

from pydantic import model_validator

from g2d.memory.workload import Training
from g2d.problems import Problem
from g2d.settings import MistakeInKeyError, Section, key

NEARLY = 0.01  # 0.333 of 15 prompts is 5
METRICS = (
    "prompts/retired",
    "prompts/skipped",  # due, but retired
    "tokens/skipped",  # of their last groups: estimated saving
)


class PromptMix(Section):
    """Kinds of prompts, for ablations and online entries."""

    prompts: Literal["verifiable", "open_ended", "mixed"] = key(
        "verifiable",
        "The training set, `open_ended.pool`, or both in each update.",
        paper="all three, in arXiv 2506.21495",
        neutral="verifiable",
    )
    open_ended_share: float = key(
        0.5,
        "Share of open-ended prompts in mixed updates; must give a whole number.",
        paper="1/3, in arXiv 2506.21495",
        gt=0,
        lt=1,
        neutral=0.5,
    )

    @model_validator(mode="after")
    def _check_share(self) -> Self:
        if self.prompts != "mixed" and self.open_ended_share != PromptMix.model_fields["open_ended_share"].default:
            raise MistakeInKeyError("open_ended_share", "is about mixed prompts: drop it, or write prompts: mixed")
        return self

    @property
    def asks_open_ended(self) -> bool:
        return self.prompts != "verifiable"

    @property
    def kinds(self) -> list[str]:
        return ["verifiable", "open_ended"] if self.prompts == "mixed" else [self.prompts]

    def open_ended_of(self, per_update: int) -> int:
        if self.prompts == "mixed":
            return whole_share(self.open_ended_share, per_update)
        return per_update if self.prompts == "open_ended" else 0


def whole_share(share: float, of: int) -> int:
    """Return a share of `of` prompts; a ValueError if it is not whole, or all or none."""
    exact = share * of
    n = round(exact)
    if abs(exact - n) > NEARLY or not 0 < n < of:
        fix = "ask two prompts or more"
        if of > 1:
            nearest = min(range(1, of), key=lambda count: abs(count - exact))
            fix = f"write {nearest / of:.4g} for {nearest}"
        raise ValueError(f"open_ended_share={share:g} of {of} prompts are {exact:g}: {fix}")
    return n


VERIFIABLE = PromptMix()


class Retire(Section):
    """Prompts to stop training on."""

    after: int = key(..., "Groups in a row without signal after which a prompt is retired.", ge=1)


class OnlineKeys(Section):
    """Base class of the keys of all online trainings: how much a step samples, and which prompts to leave out.

    `warmup` and `regimes` have different keys for the same numbers (steps and updates, group_sizes and responses);
    these methods have one name for each. Entries of `regimes` know their G, so they ignore `group_size`.
    """

    retire: Retire | None = key(None, "Leave out prompts without signal.", paper="none", neutral=None)

    def completions_per_prompt(self, group_size: int) -> int:
        return group_size

    def prompts_each_step(self, group_size: int) -> int:
        raise NotImplementedError

    def workload(self, group_size: int) -> Training:
        """Return the workload on a card."""
        raise NotImplementedError

    def completions_per_step(self, group_size: int) -> int:
        return self.prompts_each_step(group_size) * self.completions_per_prompt(group_size)

    def completions_per_generation(self, group_size: int) -> int:
        """Return the completions that are sampled with the same weights, at least."""
        return self.completions_per_step(group_size)

    def prompts_asked(self, steps: int, group_size: int) -> int:
        """Return the prompts of a training of so many steps."""
        return steps * self.prompts_each_step(group_size)


@lru_cache(maxsize=4)
def permutation(n_problems: int, seed: int, epoch: int) -> tuple[int, ...]:
    order = list(range(n_problems))
    random.Random(f"{seed}/{epoch}").shuffle(order)
    return tuple(order)


def problem_at(number: int, n_problems: int, seed: int) -> int:
    return permutation(n_problems, seed, number // n_problems)[number % n_problems]


def prompt_order(n_problems: int, n_prompts: int, seed: int) -> list[int]:
    """Return indices of the first problems of a training; a shorter order is a prefix of a longer one."""
    return [problem_at(number, n_problems, seed) for number in range(n_prompts)]


def prompt_indices(
    asked: PromptMix, problems: Sequence[Problem], n_prompts: int, per_update: int, seed: int
) -> list[int]:
    """Return indices of the first `n_prompts` problems; every update has its share of each kind."""
    by_kind: dict[str, list[int]] = {"verifiable": [], "open_ended": []}
    seen: set[str] = set()
    for number, problem in enumerate(problems):
        if problem.problem_id in seen:
            raise ValueError(
                f"{problem.problem_id!r} is a problem of the training set and of open_ended.pool: drop `fields.id` of "
                "one of them"
            )
        seen.add(problem.problem_id)
        by_kind[problem.kind].append(number)
    updates = math.ceil(n_prompts / per_update)
    n_open_ended = asked.open_ended_of(per_update)
    parts: list[list[int]] = [[] for _ in range(updates)]  # problems of each update
    for kind, n in (("verifiable", per_update - n_open_ended), ("open_ended", n_open_ended)):
        numbers = by_kind[kind]
        if n and not numbers:
            raise ValueError(f"there is no problem of the kind {kind} to ask")
        places = prompt_order(len(numbers), n * updates, seed)
        for update, part in enumerate(parts):
            part += [numbers[place] for place in places[update * n : (update + 1) * n]]
    return list(chain.from_iterable(parts))[:n_prompts]


def times_before(order: Sequence[int]) -> Iterator[int]:
    seen: Counter[int] = Counter()
    for number in order:
        yield seen[number]
        seen[number] += 1


class PromptChoice:
    """Chooses prompts by earlier answers; a group without signal has equal rewards."""

    def __init__(self, n_problems: int, seed: int, after: int) -> None:
        self.n_problems = n_problems
        self.seed = seed
        self.after = after
        self._next = 0
        self._dull: Counter[int] = Counter()  # consecutive groups without signal, by problem
        self._retired: dict[int, int] = {}  # update of retirement, by problem
        self._tokens: dict[int, int] = {}  # tokens of the last group, by problem
        self._noted: dict[int, Counter[str]] = {}

    @classmethod
    def of(cls, n_problems: int, seed: int, keys: OnlineKeys) -> PromptChoice | None:
        if keys.retire is None:
            return None
        return cls(n_problems, seed, keys.retire.after)

    def problem(self, number: int) -> int:
        return problem_at(number, self.n_problems, self.seed)

    def take(self, n: int, update: int) -> list[int]:
        """Return positions of the next `n` prompts; if all problems are retired, all return."""
        if len(self._retired) == self.n_problems:
            self._retired.clear()
        noted = self._noted.setdefault(update, Counter())
        numbers: list[int] = []
        while len(numbers) < n:
            number = self._next
            self._next += 1
            problem = self.problem(number)
            if problem in self._retired:
                noted.update({"prompts/skipped": 1, "tokens/skipped": self._tokens[problem]})
            else:
                numbers.append(number)
        noted["prompts/retired"] = len(self._retired)
        return numbers

    def observe(self, number: int, *, has_signal: bool, tokens: int, update: int) -> None:
        """Note the answers to the prompt at a position."""
        problem = self.problem(number)
        self._tokens[problem] = tokens
        # The count is kept while a problem is retired, so one more group without signal retires it again.
        if has_signal:
            self._dull[problem] = 0
        else:
            self._dull[problem] += 1
        if self._dull[problem] >= self.after:
            self._retired[problem] = update
        else:  # asked twice in one draw
            self._retired.pop(problem, None)

    def metrics(self, update: int) -> dict[str, float]:
        noted = self._noted.pop(update, Counter())
        return {name: float(noted[name]) for name in METRICS}

    def state(self) -> dict[str, object]:
        return {
            "next": self._next,
            "dull": sorted(self._dull.items()),
            "retired": sorted(self._retired.items()),
            "tokens": sorted(self._tokens.items()),
            "noted": [(update, dict(noted)) for update, noted in sorted(self._noted.items())],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self._next = state["next"]
        self._dull = Counter(dict(state["dull"]))
        self._retired = dict(state["retired"])
        self._tokens = dict(state["tokens"])
        self._noted = {update: Counter(noted) for update, noted in state["noted"]}
