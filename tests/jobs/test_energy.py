"""Energy of GPUs, with a pynvml that reads its cards from a file: no GPU and no driver is needed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from g2d.jobs.cost import Meter
from g2d.jobs.energy import joules_since, read
from tests.jobs.test_stage import command

# Like NVML, it answers only in the process that initialised it, until that process shuts it down.
FAKE = """
import json, os

NVML_DEVICE_MIG_ENABLE = 1
began_in = None

class NVMLError(Exception): pass
class NVMLError_NotSupported(NVMLError): pass

def _cards():
    if began_in != os.getpid():
        raise NVMLError("Uninitialized")
    return json.load(open(os.environ["FAKE_CARDS"]))

def _of(card, name):
    if (value := _cards()[card][name]) is None:
        raise NVMLError_NotSupported(name)
    return value

def nvmlInit():
    global began_in
    if not os.path.exists(os.environ["FAKE_CARDS"]):
        raise NVMLError("Driver Not Loaded")
    began_in = os.getpid()

def nvmlShutdown():
    global began_in
    began_in = None

def nvmlDeviceGetCount(): return len(_cards())
def nvmlDeviceGetName(card): return _of(card, "name")
def nvmlDeviceGetUUID(card): return _of(card, "uuid")
def nvmlDeviceGetTotalEnergyConsumption(card): return _of(card, "mj")
def nvmlDeviceGetMigMode(card): return [_of(card, "mig")] * 2

def nvmlDeviceGetHandleByIndex(index):
    if not 0 <= index < len(_cards()):
        raise NVMLError("Invalid Argument")
    return index

def nvmlDeviceGetHandleByUUID(uuid):
    matches = [i for i, card in enumerate(_cards()) if card["uuid"] == uuid]
    if not matches:
        raise NVMLError("Not Found")
    return matches[0]
"""


class Cards:
    """Cards of the fake."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "cards.json"
        self.cards = [
            {"uuid": f"GPU-{name}", "name": "NVIDIA H100", "mj": mj, "mig": None}
            for name, mj in (("a", 1_000_000), ("b", 5_000_000))
        ]
        self.write()

    def write(self) -> None:
        self.file.write_text(json.dumps(self.cards))

    def change(self, card: int, **values: Any) -> None:
        self.cards[card] |= values
        self.write()


@pytest.fixture
def cards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cards:
    (tmp_path / "pynvml.py").write_text(FAKE)
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
    fake = Cards(tmp_path)
    monkeypatch.setenv("FAKE_CARDS", str(fake.file))
    yield fake
    sys.modules.pop("pynvml", None)


def test_the_cards_of_a_job_add_up(cards: Cards) -> None:
    before = read(["1", "GPU-a"])
    assert before == {"GPU-b": 5_000_000, "GPU-a": 1_000_000}
    cards.change(0, mj=1_250_000)  # 250 J
    cards.change(1, mj=5_000_500)  # half a joule
    assert joules_since(before) == 250.5
    assert joules_since(read(["0"])) == 0


def test_a_reset_counter_has_no_value(cards: Cards) -> None:
    before = read(["0", "1"])
    cards.change(0, mj=100)
    cards.change(1, mj=99_000_000)
    assert joules_since(before) is None


@pytest.mark.parametrize("gpus", [[], ["2"], ["-1"], ["GPU-c"], ["MIG-a"], ["0", "7"]])
def test_missing_cards_have_no_value(cards: Cards, gpus: list[str]) -> None:
    assert read(gpus) is None
    assert joules_since(read(gpus)) is None
    assert gpus or "pynvml" not in sys.modules  # not even imported


def test_a_shared_card_and_one_without_counter_have_no_value(cards: Cards) -> None:
    before = read(["0"])
    cards.change(0, mig=0)
    assert read(["0"]) == before
    cards.change(0, mig=1)
    assert read(["0"]) is None
    assert joules_since(before) is None
    cards.change(0, mig=None, mj=None)  # older than Volta
    assert read(["0"]) is None
    assert read(["1"]) == {"GPU-b": 5_000_000}


def test_a_card_number_is_not_used_if_cards_differ(cards: Cards, monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA then numbers the fastest first, unless CUDA_DEVICE_ORDER is set."""
    cards.change(1, name="NVIDIA T4")
    assert read(["0"]) is None
    assert read(["GPU-a"]) == {"GPU-a": 1_000_000}
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    assert read(["0"]) == {"GPU-a": 1_000_000}


def test_without_a_driver_or_pynvml_there_is_no_value(cards: Cards, monkeypatch: pytest.MonkeyPatch) -> None:
    before = read(["0"])
    cards.file.unlink()
    assert read(["0"]) is None
    assert joules_since(before) is None
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert read(["0"]) is None


def test_a_fork_reads_for_itself(cards: Cards) -> None:
    before = read(["0"])
    assert sys.modules["pynvml"].began_in is None  # a fork must not inherit it
    cards.change(0, mj=1_003_000)
    if (child := os.fork()) == 0:
        os._exit(joules_since(before) != 3)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize(("wanted", "visible", "joules"), [(1, "GPU-b", 7.0), (0, "GPU-b", None), (1, "", None)])
def test_the_cost_of_a_job_with_a_gpu_has_its_energy(
    cards: Cards, tmp_path: Path, wanted: int, visible: str, joules: float | None
) -> None:
    cards.cards[0]["mj"] += 10**6  # another job's
    body = f"cards = {[*cards.cards]}; cards[1]['mj'] += 7000; import json; "
    body += "json.dump(cards, open(os.environ['FAKE_CARDS'], 'w'))"
    environment = dict(os.environ) | {"PYTHONPATH": str(tmp_path), "CUDA_VISIBLE_DEVICES": visible}
    done = subprocess.run(
        command(body, gpus=wanted), cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads((tmp_path / "cost.json").read_text())["gpu_energy_j"] == joules
    (attempt,) = (tmp_path / "attempts").glob("*.json")
    assert json.loads(attempt.read_text())["cost"]["gpu_energy_j"] == joules


def test_a_side_thread_does_not_call_the_driver(cards: Cards) -> None:
    """The job may fork meanwhile."""
    meter = Meter("job", "train_dpo", energy=read(["0"]))
    assert meter.so_far().gpu_energy_j is None
    assert meter.measured().gpu_energy_j == 0
