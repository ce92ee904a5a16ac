"""Progress of a run and its remaining time, from the durations of its jobs (`g2d.forecast.rates`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping


class Remaining:
    """Remaining time; clock readings are arguments, in seconds.

    `total` and `done` are jobs, `cores` how many of them run at once.
    """

    def __init__(self) -> None:
        # Imported here: Snakemake imports every installed plugin, also in runs of another g2d.
        from g2d.forecast.rates import Pace

        self.total = 0
        self.done = 0
        self.cores = 1
        self._began: float | None = None
        self._rule: dict[int, str] = {}
        self._running: dict[int, float] = {}  # job: start
        self._waiting: Counter[str] = Counter()
        self._pace = Pace()

    def plan(self, jobs_of_rules: Mapping[str, int]) -> None:
        """Set the number of jobs by rule, before the first job."""
        self._waiting = Counter({rule: n for rule, n in jobs_of_rules.items() if rule not in ("total", "all")})
        self.total = jobs_of_rules.get("total", self._waiting.total())

    def begin(self, job: int, rule: str, now: float) -> None:
        self._began = now if self._began is None else self._began
        self._rule[job] = rule
        self._running[job] = now
        self._waiting[rule] -= 1

    def end(self, job: int, now: float) -> None:
        if job in self._running:
            self._pace.add(self._rule[job], now - self._running.pop(job))

    def seconds(self, now: float) -> float:
        """Return the estimated remaining seconds."""
        usual = self._pace.seconds
        running = sum(max(0.0, usual(self._rule[job]) - (now - since)) for job, since in self._running.items())
        waiting = sum(max(0, n) * usual(rule) for rule, n in self._waiting.items())
        return (running + waiting) / self.cores

    def elapsed(self, now: float) -> str:
        """Format the time since the first job began."""
        seconds = round(now - (now if self._began is None else self._began))
        return f"{seconds // 60} min {seconds % 60} s" if seconds >= 60 else f"{seconds} s"

    def sentence(self, now: float) -> str:
        """Return `12 of 121 jobs, about 4 min left`."""
        minutes = self.seconds(now) / 60
        left = "less than a minute" if minutes < 1 else f"about {round(minutes)} min"
        return f"{self.done} of {self.total} jobs, {left} left"
