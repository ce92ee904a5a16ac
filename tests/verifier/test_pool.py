"""Workers: killed and replaced, never shared with a child process, never left behind."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest

from g2d.verifier import Limits, Verifier, VerifierError, verify_batch
from g2d.verifier import pool as pool_module
from g2d.verifier.pool import Pool

from .judging import boxed, verdicts_of

TOWER = "9^{9^{9^{9}}}"
MIB = 2**20
HALVES = [("1/2", "0.5"), ("1/2", "0.6")]
SOURCE = os.environ | {"PYTHONPATH": str(pool_module.PACKAGE_ROOT)}  # so that a new interpreter finds the package


def pid_of_worker(pool: Pool) -> int:
    [worker] = pool.workers
    return worker.process.pid


def alive(pid: int) -> bool:
    """Whether a process runs, or is dead and not reaped."""
    return Path(f"/proc/{pid}").exists()


@pytest.fixture(scope="module")
def pool():
    """One pool for all tests, with one worker if nothing has killed it."""
    pool = Pool(1, Limits(deadline_s=0.5))
    yield pool
    pool.close()


def statuses(pool, calls):
    return [reply.status for reply in pool.replies(calls)]


def test_the_deadline_costs_the_worker_and_nothing_else(pool):
    pool.replies(HALVES)
    before = pid_of_worker(pool)
    assert statuses(pool, [HALVES[0], ("1/2", TOWER), HALVES[1]]) == ["correct", "timeout", "incorrect"]
    after = pid_of_worker(pool)
    assert after != before
    assert not alive(before)


def test_the_deadline_is_per_item_not_per_message(pool):
    many = [(f"{i}/1009", rf"\frac{{{2 * i}}}{{2018}}") for i in range(1, 300)]
    assert set(statuses(pool, many)) == {"correct"}
    assert len(many) > pool_module.CHUNK


def test_a_worker_that_waits_is_overdue_on_the_clock(pool):
    """The CPU deadline cannot see a stopped process."""
    pool.replies(HALVES)
    (worker,) = pool.workers
    assert worker.wall_s == Limits().wall_s
    worker.process.send_signal(signal.SIGSTOP)
    worker.wall_s = 0.2
    assert statuses(pool, [HALVES[0]]) == ["timeout"]
    assert statuses(pool, HALVES) == ["correct", "incorrect"]


def test_memory_is_limited_without_the_memory_of_the_parent():
    ballast = bytearray(os.urandom(1)) * (300 * MIB)
    with closing(Pool(1, Limits(memory_bytes=150 * MIB))) as pool:
        assert statuses(pool, [HALVES[0], ("1/2", "(x+y+z+w)^{2000}"), HALVES[1]]) == ["correct", "limit", "incorrect"]
    del ballast


def test_a_worker_killed_between_batches_is_replaced(pool):
    pool.replies(HALVES)
    before = pid_of_worker(pool)
    os.kill(before, signal.SIGKILL)
    assert statuses(pool, HALVES) == ["correct", "incorrect"]
    assert pid_of_worker(pool) != before


def test_a_scheduler_that_asks_every_process_to_stop_costs_no_verdict(pool):
    """The training finishes its step after SIGTERM, and needs the workers for it."""
    pool.replies(HALVES)
    before = pid_of_worker(pool)
    os.kill(before, signal.SIGTERM)
    assert statuses(pool, HALVES) == ["correct", "incorrect"]
    assert pid_of_worker(pool) == before


def test_an_item_that_kills_twice_is_over_the_limit(monkeypatch, pool):
    """Once may be the fault of what was judged before it."""
    ask = pool_module._Worker.ask

    def ask_and_kill(worker, pairs):
        ask(worker, pairs)
        if ("1/2", "x") in pairs:
            worker.process.kill()

    monkeypatch.setattr(pool_module._Worker, "ask", ask_and_kill)
    monkeypatch.setattr(pool_module, "CHUNK", 1)
    assert statuses(pool, [HALVES[0], ("1/2", "x"), HALVES[1]]) == ["correct", "limit", "incorrect"]


def test_an_interrupted_batch_leaves_no_replies_for_the_next(monkeypatch, pool):
    pool.replies(HALVES)
    reply = pool_module._Worker.reply

    def interrupted(worker, patience_s):
        reply(worker, patience_s)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(pool_module._Worker, "reply", interrupted)
        with pytest.raises(KeyboardInterrupt):
            pool.replies(HALVES)
    assert not pool.workers
    assert statuses(pool, HALVES[::-1]) == ["incorrect", "correct"]


def test_a_worker_that_cannot_start_says_why(monkeypatch):
    monkeypatch.setattr(pool_module, "PACKAGE_ROOT", Path("/nowhere"))
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    monkeypatch.setattr(sys, "executable", "/bin/sh")
    with pytest.raises(VerifierError, match=r"did not start \(exit 2\)"):
        Pool(1, Limits()).replies(HALVES)


def test_close_reaps_and_may_be_repeated(pool):
    pool.replies(HALVES)
    pid = pid_of_worker(pool)
    pool.close()
    pool.close()
    assert not alive(pid)
    assert statuses(pool, HALVES) == ["correct", "incorrect"]


def test_workers_end_with_their_process():
    program = (
        "from g2d.verifier.verifier import shared_verifier as v\n"
        "v(2).verify([('1/2', r'\\boxed{0.5}'), ('1/3', r'\\boxed{0.5}')])\n"
        "print(*[w.process.pid for w in v(2)._pool.workers])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=SOURCE, check=True)
    assert done.stderr == ""
    assert not any(alive(int(pid)) for pid in done.stdout.split())


@pytest.mark.parametrize("closed", ["<&-", "<&- 2>&-"])
def test_standard_streams_may_be_closed(closed):
    program = (
        "from g2d.verifier import verify_batch; print(verify_batch([('1/2', r'\\boxed{0.5}')], workers=2)[0].verdict)"
    )
    shell = f'"$0" -c "$1" {closed}'
    output = subprocess.check_output(["/bin/sh", "-c", shell, sys.executable, program], text=True, env=SOURCE)
    assert output == "correct\n"


def test_threads_share_a_verifier():
    results: dict[int, list[str]] = {}
    with Verifier(2) as verifier:

        def work(i: int) -> None:
            results[i] = verdicts_of(verifier.verify([boxed(f"{i}/7", rf"\frac{{{j}}}{{7}}") for j in (1, 2, 3)]))

        threads = [threading.Thread(target=work, args=(i,)) for i in (1, 2, 3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert results == {
        1: ["correct", "incorrect", "incorrect"],
        2: ["incorrect", "correct", "incorrect"],
        3: ["incorrect", "incorrect", "correct"],
    }


def _judge_in_child(queue) -> None:
    queue.put(verdicts_of(verify_batch([boxed("1/2", "2/4"), boxed("1/2", "x")])))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_child_process_has_separate_workers(method):
    assert verify_batch([("1/2", r"\boxed{0.5}")])[0].verdict == "correct"
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    child = context.Process(target=_judge_in_child, args=(queue,))
    child.start()
    child.join()
    assert child.exitcode == 0
    assert queue.get() == ["correct", "incorrect"]
    assert verify_batch([("1/2", r"\boxed{3/6}")])[0].verdict == "correct"


def test_messages_carry_any_text(pool):
    for text in ("\x00", "\ud800", "\u202e", "1\n2", "b" * 1_900):
        hostile, ordinary = statuses(pool, [(text, "5"), ("5", "5")])
        assert hostile != "correct"
        assert ordinary == "correct"
