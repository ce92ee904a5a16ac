"""One engine process for several jobs: the same rows as an engine of one's own, and nothing left behind.

A sleeping process is the run that the engines belong to.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from g2d.jobs.cost import Meter
from g2d.jobs.orphans import RUN, name_of
from g2d.jobs.run_process import current_run, release, socket_of
from g2d.policies import Policy, load_tokenizer
from g2d.problems.prompts import Prompt
from g2d.problems.synthetic import generate
from g2d.rollouts.draw import draw_rollouts, engine_for, sampling
from g2d.rollouts.engine import Decoding, Engine, Request
from g2d.rollouts.engine_host import SharedEngine, fingerprint
from g2d.rollouts.rollout import write_rollouts
from g2d.rollouts.settings import EngineSettings, Harvest
from g2d.rollouts.vllm_engine import VllmEngine
from tests.models import adapted, tiny_policy
from tests.shared import NEEDS_VLLM
from tests.workflow import forked

pytestmark = NEEDS_VLLM

APPLIED = EngineSettings(name="vllm", adapters="lora", keep_alive=600)
MERGED = APPLIED.model_copy(update={"adapters": "merge"})
GREEDY = Decoding(1, 0.0, 1.0, 24, 64, 0)
SAMPLED = sampling(Harvest(samples_per_prompt=4, max_completion_length=24), seed=0)
PROBLEMS = generate("arithmetic", "test", 12, seed=0)


@pytest.fixture(scope="module")
def policies(tmp_path_factory: pytest.TempPathFactory) -> list[Policy]:
    """M0 and two adapters that change its answers."""
    base = tiny_policy(heads=1)
    return [base, *(adapted(base, tmp_path_factory.mktemp("adapter"), std=0.05, seed=seed) for seed in range(2))]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen[bytes]]:
    """A process that stands for Snakemake; engine processes must end with it."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("run")))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("VLLM_LOGGING_LEVEL", "INFO")  # which benchmarks that other tests import set
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"]) as process:
        monkeypatch.setenv(RUN, name_of(process.pid))
        yield process
        process.kill()
        process.wait()
        wait_until(lambda: not hosts(process.pid))


def connected(policy: Policy, keep_alive: int = 600) -> SharedEngine:
    client = SharedEngine(os.environ[RUN], policy, MERGED.model_copy(update={"keep_alive": keep_alive}))
    client.connect()
    return client


def host_of(policy: Policy) -> int:
    client = connected(policy)
    client.close()
    return client.host


def hosts(run: int) -> list[int]:
    """Return the engine processes of a run, by their command lines."""
    commands = {process.pid: process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])}
    of_engines = {pid: words for pid, words in commands.items() if "g2d.rollouts.engine_host" in words}
    return [pid for pid, words in of_engines.items() if any(word.startswith(f"{run} ") for word in words)]


def wait_until(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.05)


def rows(engine: Engine, policy: Policy, file: Path) -> list[bytes]:
    """Return the files of a policy's greedy and sampled rollouts."""
    drawn = []
    for decoding in (GREEDY, SAMPLED):
        write_rollouts(file, draw_rollouts(policy, PROBLEMS, Prompt(), decoding, engine=engine, token_ids=True))
        drawn.append(file.read_bytes())
    return drawn


def test_one_process_gives_the_files_of_separate_engines(
    run: subprocess.Popen[bytes],
    policies: list[Policy],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Byte for byte, adapters applied and merged; M0 in the engine of its adapters equals M0 in an engine without.

    The costs of the jobs include what the process has used.
    """
    jobs = [(APPLIED, 1), (APPLIED, 0), (APPLIED, 2), (APPLIED, 1), (MERGED, 1)]
    monkeypatch.setattr(sys, "executable", forked.python())  # has vLLM's imports
    shared = []
    meter = Meter("job", "evaluate")
    for settings, i in jobs:
        engine = engine_for(policies[i], settings, adapter_rank=16, longest=200)
        shared.append(rows(engine, policies[i], tmp_path / "rows"))
    host = host_of(policies[0])
    assert capfd.readouterr().out.count("Initializing a V1 LLM engine") == 2, "one for all applied adapters"
    assert meter.end().cpu_s > 0.9 * sum(psutil.Process(host).cpu_times()[:2]) > 0
    with pytest.raises(ValueError, match="problem long: its 501 tokens and max_completion_length=24 exceed"):
        engine_for(policies[1], MERGED).generate([Request("long", "1 " * 500)], GREEDY)
    assert host_of(policies[0]) == host, "a mistake in a request does not end it"
    assert shared[0] == shared[3], "other policies were served in between"
    for (settings, i), drawn in zip(jobs[1:], shared[1:], strict=True):
        if (settings, i) != (APPLIED, 1):
            separate = settings.model_copy(update={"keep_alive": 0})
            assert rows(engine_for(policies[i], separate), policies[i], tmp_path / "rows") == drawn
    assert len({file for drawn in shared[:3] for file in drawn}) == 6, "three policies, two decodings"


def test_jobs_that_start_at_once_get_one_process_in_turn(run: subprocess.Popen[bytes], policies: list[Policy]) -> None:
    seen: list[int] = []

    def job() -> None:
        client = connected(policies[0])
        seen.append(client.host)
        client.close()

    jobs = [threading.Thread(target=job) for _ in range(4)]
    for one in jobs:
        one.start()
    for one in jobs:
        one.join()
    assert len(seen) == 4
    wait_until(lambda: len(hosts(run.pid)) == 1)  # those that came too late see that and end
    assert set(seen) == {*hosts(run.pid)}


def test_it_ends_when_idle_or_released_and_the_next_job_starts_another(
    run: subprocess.Popen[bytes], policies: list[Policy]
) -> None:
    release()  # there is none
    client = connected(policies[0], keep_alive=1)
    time.sleep(2.5)
    assert hosts(run.pid) == [client.host], "a connection is not idleness"
    client.close()
    wait_until(lambda: not hosts(run.pid))
    assert list(socket_of(os.environ[RUN]).parent.iterdir()) == [], "neither socket nor lock"
    following = connected(policies[0])
    assert following.host != client.host
    following.close()
    release()
    assert not hosts(run.pid)


def test_it_ends_with_its_run_even_in_the_middle_of_a_turn(
    run: subprocess.Popen[bytes], policies: list[Policy]
) -> None:
    client = connected(policies[0])
    run.kill()
    run.wait()
    with pytest.raises(RuntimeError, match=rf"the shared engine \(process {client.host}\) died, its output is in "):
        client.ask("open", policies[0], MERGED, {"threads": 0})
    wait_until(lambda: not hosts(run.pid))
    assert current_run() is None
    assert isinstance(engine_for(policies[0], MERGED), VllmEngine), "an orphaned job has an engine of its own"


def test_models_of_one_folder_render_their_own_templates(
    run: subprocess.Popen[bytes], policies: list[Policy], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each job disconnects after rendering: otherwise the next one would wait forever."""
    monkeypatch.setattr(sys, "executable", forked.python())
    folder = shutil.copytree(policies[0].base, tmp_path / "model")
    plain = Policy("m/base", "m", "base", base=str(folder))
    template = load_tokenizer(plain).get_chat_template()
    (folder / "chat_template.jinja").write_text("{{ first | default('') }}" + template)
    asked = [{"role": "user", "content": "1 + 1"}]
    brief = replace(plain, chat_template_kwargs={"first": "Be brief."})
    engines = [engine_for(policy, APPLIED) for policy in (plain, brief, plain)]
    shown = [engine.render(asked) for engine in engines]
    assert shown == [shown[0], f"Be brief.{shown[0]}", shown[0]]


def test_a_killed_engine_is_one_clear_error_and_the_next_job_starts_another(
    run: subprocess.Popen[bytes], policies: list[Policy]
) -> None:
    """It is killed while it starts vLLM, and leaves socket and lock file."""
    before = connected(policies[0])
    before.close()
    threading.Timer(1, os.kill, (before.host, signal.SIGKILL)).start()
    with pytest.raises(RuntimeError, match=r"died, .* run again, which starts another, or set engine\.keep_alive: 0"):
        engine_for(policies[0], MERGED).render([{"role": "user", "content": "1 + 1"}])
    assert socket_of(os.environ[RUN]).exists()
    after = connected(policies[0])
    assert after.host != before.host
    after.close()


def test_the_socket_is_private_and_of_the_visible_gpus(
    run: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = socket_of(os.environ[RUN])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert socket_of(os.environ[RUN]) != first
    first.parent.chmod(0o755)
    with pytest.raises(RuntimeError, match=r"must be a folder of yours that nobody else can enter"):
        socket_of(os.environ[RUN])


def test_other_weights_at_the_same_place_are_other_weights(policies: list[Policy], tmp_path: Path) -> None:
    copy = tmp_path / "model"
    shutil.copytree(policies[0].base, copy)
    before = fingerprint(copy)
    assert fingerprint(copy) == before
    weights = copy / "model.safetensors"
    times = weights.stat().st_atime_ns, weights.stat().st_mtime_ns
    with open(weights, "r+b") as file:  # other weights of the same size, which claim to be as old
        file.seek(-1, os.SEEK_END)
        file.write(b"?")
    os.utime(weights, ns=times)
    assert fingerprint(copy) != before


def test_without_a_run_or_a_wish_nothing_is_shared(
    policies: list[Policy], monkeypatch: pytest.MonkeyPatch, run: subprocess.Popen[bytes]
) -> None:
    assert isinstance(engine_for(policies[0], EngineSettings(name="vllm")), VllmEngine)
    monkeypatch.delenv(RUN)
    assert isinstance(engine_for(policies[0], MERGED), VllmEngine)
    assert not hosts(run.pid)
