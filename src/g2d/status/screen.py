from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from g2d.forecast.devices import Device
from g2d.forecast.hours import Line
from g2d.plain import plain
from g2d.status.snapshot import Snapshot
from g2d.status.states import TROUBLE, JobState, State

COLUMNS: tuple[State, ...] = ("finished", "running", *TROUBLE, "waiting")


def screen(snapshot: Snapshot, width: int, height: int) -> str:
    """Return at most `height` lines of `width` characters; the most urgent come first."""
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(snapshot.now))
    done = f"{snapshot.counts['finished']} of {len(snapshot.states)} jobs finished"
    table = [f"{snapshot.title}: {done} ({at}, {plain(str(snapshot.results))})", *_table(snapshot)]
    running, trouble, foot = snapshot.of("running"), snapshot.of(*TROUBLE), list(_foot(snapshot))
    room = height - len(foot) - len(table)
    n_running, n_trouble = _shared(max(2, room), len(running), len(trouble))
    lists = [
        *_listed([_running(state, snapshot.now) for state in running[:n_running]], len(running), "running"),
        *_listed([_trouble(state, snapshot) for state in trouble[:n_trouble]], len(trouble), "in trouble"),
    ]
    shown = [*table, *lists, *foot][:height]
    return "\n".join(line if len(line) <= width else f"{line[: max(0, width - 3)]}..." for line in shown)


def _table(snapshot: Snapshot) -> Iterator[str]:
    shown = [state for state in COLUMNS if snapshot.counts[state]]
    whole: dict[State, list[str]] = {"finished": [], "waiting": []}
    rows = []
    for stage, counts in snapshot.stages.items():
        if len(counts) == 1 and (only := next(iter(counts))) in whole:
            whole[only].append(f"{stage} {counts.total()}")
        else:
            rows.append([stage, *(str(counts[state] or "-") for state in shown)])
    if rows:
        cells = [["", *shown], *rows]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        for stage, *numbers in cells:
            yield "  ".join(["", stage.ljust(widths[0]), *map(str.rjust, numbers, widths[1:])])
    yield from (f"{state}: {', '.join(stages)}" for state, stages in whole.items() if stages)


def _running(state: JobState, now: float) -> str:
    last = state.last
    assert last is not None
    parts = [f"for {span(now - last.started)}"]
    if state.position:
        step, steps = state.position
        parts.insert(0, f"step {step} of {steps}")
    if len(state.attempts) > 1:
        parts.append(f"attempt {len(state.attempts)}")
    slurm = last.process.slurm_job
    where = plain(str(last.host)) + (f", Slurm job {plain(slurm)}" if slurm else "")
    return f"{_named(state)}: {', '.join(parts)}; {where}, heard of {span(now - last.updated)} ago"


def _trouble(state: JobState, snapshot: Snapshot) -> str:
    last = state.last
    assert last is not None
    when = time.strftime("%d %b %H:%M", time.localtime(last.updated))
    phrases = {"silent": f"no sign of life since {when}", "missing": f"ended well {when}, its files are not there"}
    text = phrases.get(state.state, f"{state.state} {when}")
    if len(state.attempts) > 1:
        text += f", attempt {len(state.attempts)}"
    if state.kept_step:
        text += f", kept up to step {state.kept_step}"
    words = snapshot.words(state) if state.state != "missing" else ""
    return f"{_named(state)}: {text}" + (f": {words}" if words else "")


def _named(state: JobState) -> str:
    return f"{state.job.rule} {plain(state.job.name).removeprefix('results/').removesuffix('/cost')}"


def _shared(room: int, first: int, second: int) -> tuple[int, int]:
    room -= (first > 0) + (second > 0)
    of_first = min(first, max(1, room - second, (room + 1) // 2))
    return of_first, min(second, max(1, room - of_first))


def _listed(lines: Sequence[str], total: int, what: str) -> Iterator[str]:
    if total:
        yield f"{what}: {total}" + (f", {total - len(lines)} not shown" if len(lines) < total else "")
        yield from (f"  {line}" for line in lines)


def hours_to_go(lines: Sequence[Line], device: Device) -> Iterator[str]:
    if not lines:
        return
    known_from = (line.source.removeprefix("at most; ") for line in lines if line.hours is not None)
    sources = dict.fromkeys(source.partition(" (")[0] for source in known_from)
    unknown = [line.stage for line in lines if line.hours is None]
    more = f" and what was not measured: {', '.join(unknown)}" if unknown else ""
    total = sum(line.hours or 0.0 for line in lines)
    yield f"to go: about {total:.1f} {device.unit} ({'; '.join(sources) or 'not measured yet'}){more}"


def _foot(snapshot: Snapshot) -> Iterator[str]:
    yield f"spent: {snapshot.device_hours:.1f} device-hours"
    yield from hours_to_go(snapshot.to_go, snapshot.device)
    left = len(snapshot.states) - snapshot.counts["finished"]
    if not left:
        yield "all jobs have finished"
    elif not snapshot.counts["running"]:
        yield f"nothing runs; {left} jobs to go" + ("" if snapshot.is_locked else ", and no Snakemake holds the folder")
    for reason in snapshot.unreadable[:1]:
        yield f"not counted, {len(snapshot.unreadable)} unreadable: {reason}"


def span(seconds: float) -> str:
    """Return a duration in words: `40 s`, `12 min`, `3 h 5 min`, `2 d 4 h`."""
    seconds = max(0.0, seconds)
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min"
    return f"{hours // 24} d {hours % 24} h"
