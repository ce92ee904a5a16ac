"""Progress of a run in one line, and accuracies as soon as they are known.

    snakemake --cores 2 --logger g2d

It replaces what Snakemake prints about a run; the complete log stays in `.snakemake/log`. Warnings, errors and runs
without jobs are printed as usual.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from logging import INFO, LogRecord
from typing import Any

from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.common import LogEvent

from snakemake_logger_plugin_g2d.accuracies import Accuracies
from snakemake_logger_plugin_g2d.calibration import mixed_outcomes
from snakemake_logger_plugin_g2d.remaining import Remaining

LINE_EVERY = 20.0  # seconds between lines, without a terminal
CLEAR = "\r\033[K"


class LogHandler(LogHandlerBase):
    writes_to_stream = True
    writes_to_file = False
    has_filter = False  # Snakemake's filter then obeys --quiet
    has_formatter = False
    needs_rulegraph = False

    def __post_init__(self) -> None:
        self.stream = sys.stdout if self.common_settings.stdout else sys.stderr
        self.live = self.stream.isatty() and os.environ.get("TERM") != "dumb"
        self.remaining = Remaining()
        self.accuracies = Accuracies()
        self.jobs: dict[int, LogRecord] = {}  # started jobs
        self.running: dict[int, str] = {}
        self.held: list[str] = []  # messages before the first job, printed if none runs
        self.is_shown = False
        self.printed_at = -LINE_EVERY
        self.closed = threading.Event()

    def emit(self, record: LogRecord) -> None:
        """Record an event of Snakemake, or print a message."""
        event = getattr(record, "event", None)
        try:
            if event == LogEvent.RUN_INFO and not self.common_settings.dryrun:
                self.remaining.plan(record.__dict__["stats"])
                self._begin()
            elif event == LogEvent.JOB_INFO and not self.common_settings.dryrun:
                self._job_begins(record)
            elif event == LogEvent.JOB_FINISHED:
                self._job_is_done(record.__dict__["job_id"])
            elif event == LogEvent.PROGRESS:
                self._progress(record.__dict__["done"], record.__dict__["total"])
            elif event == LogEvent.RESOURCES_INFO and "cores" in record.__dict__:
                self.remaining.cores = record.__dict__["cores"]
            elif record.levelno > INFO or self.common_settings.dryrun:
                if event == LogEvent.JOB_ERROR:
                    self.running.pop(record.__dict__["jobid"], None)
                self._print(self.format(record))
            elif event is None and not self.remaining.total:
                self.held.append(self.format(record))
        except BrokenPipeError:  # `| head`
            pass
        except Exception:
            self.handleError(record)

    def close(self) -> None:
        """Restore the terminal; if no job ran, print Snakemake's messages."""
        self.closed.set()
        with self.lock:  # type: ignore[union-attr]
            self._clear()
            if not self.remaining.total:
                for message in self.held:
                    self._print(message)
            self.held = []
        super().close()

    def _begin(self) -> None:
        self.held = []
        if self.live:
            threading.Thread(target=self._tick, name="progress", daemon=True).start()

    def _tick(self) -> None:
        while not self.closed.wait(1):
            with self.lock:  # type: ignore[union-attr]
                if not self.closed.is_set():
                    self._show()

    def _job_begins(self, record: LogRecord) -> None:
        job: dict[str, Any] = record.__dict__
        self.jobs[job["jobid"]] = record
        self.running[job["jobid"]] = job["rule_msg"] or job["rule_name"]
        self.remaining.begin(job["jobid"], job["rule_name"], time.monotonic())
        self._show()

    def _job_is_done(self, number: int) -> None:
        from g2d.jobs.stage import own_name

        self.running.pop(number, None)
        self.remaining.end(number, time.monotonic())
        job: dict[str, Any] = self.jobs[number].__dict__ if number in self.jobs else {"rule_name": None}
        if own_name(job["rule_name"] or "") == "evaluate":
            for line in self.accuracies.add(job["wildcards"], job["output"]):
                self._print(line)
        elif job["rule_name"] and own_name(job["rule_name"]) == "select_training_set":
            for line in mixed_outcomes(job["wildcards"], job["output"]):
                self._print(line)

    def _progress(self, done: int, total: int) -> None:
        self.remaining.done, self.remaining.total = done, total
        if done < total:
            self._show()
        else:
            self._print(f"{total} jobs done in {self.remaining.elapsed(time.monotonic())}")
            self.closed.set()

    def _show(self) -> None:
        now = time.monotonic()
        state, running = f"{self.remaining.sentence(now)}: ", list(self.running.values()) or ["the next job"]
        if self.live:
            room = (shutil.get_terminal_size().columns - 1 - len(state)) // len(running) - 2
            self.stream.write(CLEAR + state + "; ".join(_cut(job, room) for job in running))
            self.is_shown = True
        elif now - self.printed_at >= LINE_EVERY:
            self.stream.write(state + "; ".join(running) + "\n")
            self.printed_at = now
        self.stream.flush()

    def _clear(self) -> None:
        if self.is_shown:
            self.stream.write(CLEAR)
            self.is_shown = False

    def _print(self, message: str) -> None:
        self._clear()
        if message and message != "None":
            self.stream.write(message + "\n")
        self.stream.flush()


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: max(0, length - 3)] + "..."
