"""Wrapper of every stage: log, cost, record of the attempt, and digests."""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from g2d.jobs.attempts import Stopped, attempt_file, recorded
from g2d.jobs.cost import Meter, write_cost
from g2d.jobs.digests import remembered_digests, require_recorded, write_digests
from g2d.jobs.environment import VISIBLE, pin_embedded, take_gpus
from g2d.jobs.orphans import end_with_snakemake
from g2d.jobs.snakemake_jobs import Snakemake
from g2d.plain import say

# Rules that may use the network; all others run offline and without a token.
FETCHING = frozenset({"pretrained_model", "load_problems"})
TOKENS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
LOGS = Path("results/logs")
CLOCK_SKEW = 60  # seconds between the clocks of a file server and a node
DETAILS = "details: "  # before the path of the log, in the last line of a failed job
RULE_NAMES = "G2D_RULE_NAMES"  # pattern of rule names, such as `g2d_*`


def allow_interrupt() -> None:
    """Let Ctrl-C through. It is held back from the start of a job (`hold_back_interrupts` in messages.smk)."""
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)


@contextmanager
def stage(snakemake: Snakemake, reads: Iterable[str] = ()) -> Iterator[Meter]:
    """Run the body of a rule's script, with its output in the rule's log.

    `reads` are files outside of `results/` that are no inputs of the rule, because a moved file is no other input. An
    exception or SIGTERM ends the process with a traceback in the log, and one sentence there and on the terminal.
    """
    allow_interrupt()
    terminal = _redirect_output(Path(snakemake.log[0]))
    rule = own_name(snakemake.rule)
    end_with_snakemake()
    # torch reads this at import, and no script imports it earlier.
    os.environ["OMP_NUM_THREADS"] = str(snakemake.threads)
    pin_embedded(snakemake)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(snakemake.threads)
    go_offline(rule)
    cost = next((path for path in snakemake.output if path.endswith("cost.json")), None)
    job = str(Path(cost or snakemake.output[0]).with_suffix(""))
    try:
        require_clock(snakemake.input)
        external = [file for file in snakemake.input if not file.startswith("results/")]
        read = remembered_digests([*external, *reads])
        gpus = snakemake.resources.get("gpu")
        if gpus == 0:  # its costs would count all that torch sees in a fork of the shared imports
            os.environ[VISIBLE] = ""
        take_gpus(int(gpus or 0))
        with _stoppable():
            meter = Meter(job, rule, threads=snakemake.threads)
            with recorded(attempt_file(snakemake.log[0]), meter):
                read |= require_recorded(file for file in snakemake.input if file not in read)
                yield meter
        require_clock(snakemake.input)  # while a training can still continue in its work folder
        if cost and not snakemake.output.get("costs"):  # an evaluation writes its costs per benchmark
            write_cost(cost, meter.spent(), parents=snakemake.input.get("costs", []))
        write_digests(snakemake.log[0], snakemake.output, read)
    except (Exception, Stopped) as error:
        sentence = f"{snakemake.rule}: {error}\n  {DETAILS}{Path(snakemake.log[0]).absolute()}"
        say(sentence, file=terminal)
        with suppress(OSError):  # the log may be on the full disk
            # A training that saved its step ended as it should.
            is_expected = isinstance(error, Stopped) and error.saved
            traceback.print_exc(limit=0 if is_expected else None)
            say(f"\n{sentence}", file=sys.stderr)
            sys.stdout.flush()
            sys.stderr.flush()
        for descriptor in (1, 2):  # else a failed flush at exit changes the exit status
            os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
        sys.exit(1)


def error_of(log: str | Path, rule: str) -> str | None:
    """Return what a failed job printed on the terminal, from its log; None if it could not, for example when killed."""
    try:
        text = Path(log).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    _, before, sentence = text.rpartition(f"\n\n{rule}: ")
    return f"{rule}: {sentence.rstrip()}" if before else None


def require_clock(files: Iterable[str]) -> None:
    """Wait until no input is newer than the clock: Snakemake deletes outputs that look older than an input.

    A RuntimeError if the clock is over a minute behind.
    """
    newest = ""
    changed = 0.0
    for file in files:
        with suppress(FileNotFoundError):
            mtime = Path(file).stat().st_mtime
            if mtime > changed:
                newest = file
                changed = mtime
    behind = changed - time.time()
    if behind > CLOCK_SKEW:
        raise RuntimeError(
            f"{newest}: {behind / 60:,.0f} minutes newer than this machine's clock: set the clock, or if an "
            "earlier one was ahead: find results -newermt now -exec touch {} +"
        )
    time.sleep(max(behind, 0))


def own_name(rule: str) -> str:
    """Return `harvest` for `g2d_harvest` after `use rule * from g2d as g2d_*`."""
    before, _, after = os.environ.get(RULE_NAMES, "*").partition("*")
    return rule.removeprefix(before).removesuffix(after)


def go_offline(rule: str | None = None) -> None:
    """Switch off telemetry and, for rules that do not fetch, the Hub, before its client is imported."""
    os.environ.update(HF_HUB_DISABLE_TELEMETRY="1", DO_NOT_TRACK="1")
    if rule not in FETCHING:
        os.environ["HF_HUB_OFFLINE"] = "1"
        for token in TOKENS:
            os.environ.pop(token, None)


def set_trackio_folder() -> None:
    os.environ["TRACKIO_DIR"] = str(LOGS.resolve() / "trackio")


@contextmanager
def _stoppable() -> Iterator[None]:
    """Turn SIGTERM into an exception, so that the attempt is recorded."""
    job = os.getpid()

    def stop(number: int, _frame: object) -> None:
        if os.getpid() != job:  # a fork, such as a pool's worker
            os._exit(128 + number)
        raise Stopped(f"stopped by {signal.Signals(number).name}")

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _redirect_output(log: Path) -> TextIO:
    """Send file descriptors 1 and 2 to the log, also for native libraries; return the terminal."""
    log.parent.mkdir(parents=True, exist_ok=True)
    terminal = os.fdopen(os.dup(2), "w")
    sys.stdout.flush()
    sys.stderr.flush()
    with open(log, "w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    return terminal
