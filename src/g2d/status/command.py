"""`g2d status`: jobs, costs, and the hours that are left."""

from __future__ import annotations

import argparse
import gc
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from g2d.forecast.devices import Device
from g2d.forecast.hours import Line
from g2d.plain import counted, plain, say
from g2d.settings.arguments import at_least
from g2d.status.again import command
from g2d.status.states import TROUBLE, Folder, JobState, Snapshot, State

CLEAR = "\033[H\033[2J"
UNCUT = 1_000_000  # if the output is no terminal
COLUMNS: tuple[State, ...] = ("finished", "running", *TROUBLE, "waiting")


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "status",
        help="what has finished, runs, failed and is to come",
        description="What has finished, what runs and at which step, what failed and its last line, and the hours that "
        "are left. Only reads files, so it also works on a login node while jobs run elsewhere.",
    )
    parser.add_argument(
        "results",
        nargs="?",
        type=Path,
        default=Path("results"),
        help="the folder, or that of the run (default: results)",
    )
    parser.add_argument(
        "--watch",
        nargs="?",
        type=at_least(0, above=True),
        const=5.0,
        metavar="SECONDS",
        help="print again every so many seconds (5) until all jobs have finished or Ctrl-C",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    results = arguments.results
    if (results / "results/config.yaml").is_file():  # the folder of a run (--directory)
        results = results / "results"
    if not results.is_dir():
        raise FileNotFoundError(f"no results folder at {results}: run this where Snakemake runs, or name the folder")
    if not (results / "config.yaml").is_file():
        raise FileNotFoundError(f"{results}/config.yaml is not there: no run has begun in this folder")
    gc.set_threshold(1_000_000)  # collecting takes as long as reading ten thousand records
    folder = Folder(results)
    try:
        while True:
            snapshot = folder.look()
            _print(snapshot, again=arguments.watch is not None)
            if arguments.watch is None or snapshot.counts["finished"] == len(snapshot.states):
                return 0
            time.sleep(arguments.watch)
    except KeyboardInterrupt:
        if arguments.watch is None:
            raise
        return 0  # Ctrl-C ends a watch


def _print(snapshot: Snapshot, *, again: bool) -> None:
    if not sys.stdout.isatty():
        say(screen(snapshot, UNCUT, UNCUT))
        return
    width, height = shutil.get_terminal_size()
    if again:
        sys.stdout.write(CLEAR)
    say(screen(snapshot, width, height - 1))


def screen(snapshot: Snapshot, width: int, height: int) -> str:
    """Return at most `height` lines of `width` characters; the most urgent come first."""
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(snapshot.now))
    done = f"{snapshot.counts['finished']} of {counted(len(snapshot.states), 'job')} finished"
    table = [f"{snapshot.title}: {done} ({at}, {plain(str(snapshot.results))})", *_table(snapshot)]
    foot = list(_foot(snapshot))
    running = snapshot.of("running")
    trouble = snapshot.of(*TROUBLE)
    room = height - len(foot) - len(table)
    n_running, n_trouble = _shared(max(2, room), len(running), len(trouble))
    running_lines = [_running(state, snapshot.now) for state in running[:n_running]]
    trouble_lines = [_trouble(state, snapshot) for state in trouble[:n_trouble]]
    lines = [
        *table,
        *_listed(running_lines, len(running), "running"),
        *_listed(trouble_lines, len(trouble), "in trouble"),
        *foot,
    ]
    return "\n".join(_cut(line, width) for line in lines[:height])


def _cut(line: str, width: int) -> str:
    if len(line) <= width:
        return line
    return f"{line[: max(0, width - 3)]}..."


def _table(snapshot: Snapshot) -> Iterator[str]:
    """Yield a row per stage; stages with all jobs finished or waiting share a line."""
    shown = [state for state in COLUMNS if snapshot.counts[state]]
    whole: dict[State, list[str]] = {"finished": [], "waiting": []}
    rows: list[list[str]] = []
    for stage, counts in snapshot.stages.items():
        states = list(counts)
        if len(states) == 1 and states[0] in whole:
            whole[states[0]].append(f"{stage} {counts.total()}")
        else:
            numbers = [str(counts[state] or "-") for state in shown]
            rows.append([stage, *numbers])
    if rows:
        cells = [["", *shown], *rows]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        for stage, *numbers in cells:
            yield "  ".join(["", stage.ljust(widths[0]), *map(str.rjust, numbers, widths[1:])])
    for state, stages in whole.items():
        if stages:
            yield f"{state}: {', '.join(stages)}"


def _running(state: JobState, now: float) -> str:
    last = state.last
    assert last is not None
    parts = [f"for {span(now - last.started)}"]
    if state.position:
        step, steps = state.position
        parts.insert(0, f"step {step} of {steps}")
    if len(state.attempts) > 1:
        parts.append(f"attempt {len(state.attempts)}")
    where = plain(str(last.host))
    slurm = last.process.slurm_job
    if slurm:
        where += f", Slurm job {plain(slurm)}"
    return f"{_named(state)}: {', '.join(parts)}; {where}, heard of {span(now - last.updated)} ago"


def _trouble(state: JobState, snapshot: Snapshot) -> str:
    last = state.last
    assert last is not None
    when = time.strftime("%d %b %H:%M", time.localtime(last.updated))
    if state.state == "silent":
        text = f"no sign of life since {when}"
    elif state.state == "missing":
        text = f"ended well {when}"
    else:
        text = f"{state.state} {when}"
    if len(state.attempts) > 1:
        text += f", attempt {len(state.attempts)}"
    if state.kept_step:
        text += f", kept up to step {state.kept_step}"
    if state.state == "missing":
        missing = [file for file in state.job.done if not Path(snapshot.results.parent, file).exists()]
        # The command is last, so that it can be copied.
        text += f", its files are not there; to make them again: {command(snapshot.results, missing)}"
    else:
        words = snapshot.words(state)
        if words and state.state == "failed":
            text += f": {words}"
        elif words:
            text += f", last logged: {words}"
    return f"{_named(state)}: {text}"


def _named(state: JobState) -> str:
    name = plain(state.job.name).removeprefix("results/")
    if name.endswith(("/cost", ".cost")):  # the file that is written last
        name = name[: -len("/cost")]
    return f"{state.job.rule} {name}"


def _shared(room: int, first: int, second: int) -> tuple[int, int]:
    """Return how many lines of two lists are shown; each list has a line above it."""
    if first > 0:
        room -= 1
    if second > 0:
        room -= 1
    of_first = min(first, max(1, room - second, (room + 1) // 2))
    of_second = min(second, max(1, room - of_first))
    return of_first, of_second


def _listed(lines: Sequence[str], total: int, what: str) -> Iterator[str]:
    if total == 0:
        return
    title = f"{what}: {total}"
    if len(lines) < total:
        title += f", {total - len(lines)} not shown"
    yield title
    for line in lines:
        yield f"  {line}"


def hours_to_go(lines: Sequence[Line], device: Device) -> Iterator[str]:
    if not lines:
        return
    total = 0.0
    sources: list[str] = []
    unknown: list[str] = []
    for line in lines:
        if line.hours is None:
            unknown.append(line.stage)
            continue
        total += line.hours
        source = line.source.removeprefix("at most; ").partition(" (")[0]
        if source not in sources:
            sources.append(source)
    words = f"to go: about {total:.1f} {device.unit} ({'; '.join(sources) or 'not measured yet'})"
    if unknown:
        words += f" and what was not measured: {', '.join(unknown)}"
    yield words


def _foot(snapshot: Snapshot) -> Iterator[str]:
    yield f"spent: {snapshot.device_hours:.1f} device-hours"
    yield from hours_to_go(snapshot.to_go, snapshot.device)
    left = len(snapshot.states) - snapshot.counts["finished"]
    if left == 0:
        yield "all jobs have finished"
    elif snapshot.counts["running"] == 0:
        words = f"nothing runs; {counted(left, 'job')} to go"
        # Snakemake does not make files behind finished results again unless they are its targets.
        is_asked_for = left > snapshot.counts["missing"]
        if is_asked_for and not snapshot.is_locked:
            words += f", and no Snakemake holds the folder; to go on: {command(snapshot.results)}"
        yield words
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
