"""First run on a GPU in one command: all measurements that need a card, part by part, and a table at the end.

    python benchmarks/gpu.py --out /tmp/g2d-gpu [--wheels FOLDER] [--parts NAME ...]
    python benchmarks/gpu.py --out /tmp/g2d-gpu --device cpu --tiny     # test of the script

The machine needs CUDA, torch and transformers; it may have no network and a read-only checkout. Missing packages come
from `--wheels` (`benchmarks/wheelhouse.py` collects them) and are installed below `--out`, the folder of all output.
Each part (see `gpu_parts.py`) is a separate process: it ends as ok, failed (with its last line) or skipped (with the
reason), and its output is in OUT/NAME.log. OUT/gpu.json is written after every part, so an interrupted run keeps its
measurements; OUT/gpu.md is the table.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import site
import subprocess
import sys
import sysconfig
import time
import venv
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PARTS = {  # cheap and decisive ones first; with the seconds that are enough where the card's CPU is slow
    "environment": ("the card, versions, bandwidth", 120),
    "greedy": ("greedy answers, float32 on the CPU and as they run here", 180),
    "start": ("a job's start on the card, with imports of its own and with shared ones", 300),
    "adapters": ("what is left of a small adapter, applied and merged", 180),
    "training-0.5b": ("GRPO and DPO at the paper's settings, 0.5B: seconds, peak beside `g2d plan`", 300),
    "full-passes": ("seconds of a step in passes of 4 rows and of as many as fit, 0.5B", 420),
    "vllm-0.5b": ("one start of vLLM: tokens per second, GRPO with it, its probabilities beside the trainer's", 600),
    "harvest-0.5b": ("tokens per second beside the bandwidth's limit, 0.5B", 420),
    "resume": ("a GRPO run that was stopped, beside two that were not", 240),
    "training-7b": ("GRPO and DPO at the paper's settings, 7B", 420),
    "harvest-7b": ("tokens per second, 7B", 420),
    "engine-after": ("an engine where a trainer and another engine lived", 420),
    "two-gpus": ("two jobs side by side take distinct cards", 120),
    "tensor-parallel": ("vLLM over two cards", 420),
    "micro-grid": ("the whole workflow in miniature", 600),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="a folder that can be written")
    parser.add_argument("--wheels", type=Path, help="from benchmarks/wheelhouse.py, to install from")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--tiny", action="store_true", help="the smallest shapes")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), metavar="NAME")
    parser.add_argument("--limit", type=float, help="seconds that one part may take, whatever it is")
    parser.add_argument("--minutes", type=float, default=30, help="that all parts may take together")
    arguments = parser.parse_args()
    out = arguments.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + 60 * arguments.minutes
    environment, python = surroundings(out, arguments.device), interpreter(out)
    if arguments.wheels:
        install(arguments.wheels.resolve(), python)
    parts_done: list[dict[str, Any]] = []
    for name in arguments.parts:
        description, limit = PARTS[name]
        print(f"{name}: {description} ...", flush=True)
        left = end - time.monotonic()
        if left > 0:
            parts_done.append(run(name, arguments, python, environment, min(arguments.limit or limit, left)))
        else:
            reason = f"the {arguments.minutes:g} minutes of --minutes are over"
            parts_done.append({"part": name, "seconds": 0.0, "status": "skipped", "reason": reason})
        (out / "gpu.json").write_text(json.dumps(parts_done, indent=2))
        (out / "gpu.md").write_text(table(parts_done))
        print(
            f"  {parts_done[-1]['status']} in {parts_done[-1]['seconds']:.0f} s: {in_words(parts_done[-1])}", flush=True
        )
    print("\n" + table(parts_done))
    return 1 if any(part["status"] == "failed" for part in parts_done) else 0


def interpreter(out: Path) -> Path:
    """Create a Python below OUT that sees this checkout and this Python's packages; installed wheels come first.

    PYTHONPATH does not work, because Snakemake removes it from its jobs.
    """
    venv.create(out / "venv", system_site_packages=True, symlinks=True)
    packages = sysconfig.get_path("purelib", vars={"base": str(out / "venv"), "platbase": str(out / "venv")})
    lines = [str(HERE.parent / "src"), *(f"import site; site.addsitedir({p!r})" for p in site.getsitepackages())]
    Path(packages, "g2d.pth").write_text("\n".join(lines) + "\n")
    return out / "venv/bin/python"


def surroundings(out: Path, device: str) -> dict[str, str]:
    """The environment of every part: nothing is fetched, nothing is written but below OUT."""
    variables = {
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(out / "hub"),
        "XDG_CACHE_HOME": str(out / "cache"),
        "TRITON_CACHE_DIR": str(out / "cache/triton"),
        "TOKENIZERS_PARALLELISM": "false",
    }
    return os.environ | variables | ({"CUDA_VISIBLE_DEVICES": ""} if device == "cpu" else {})


def install(wheels: Path, python: Path) -> None:
    """Unpack the wheels into OUT's Python; nothing is downloaded."""
    begun = time.monotonic()
    files = sorted(map(str, wheels.glob("*.whl")))
    if not files:
        sys.exit(f"{wheels}: no wheels in it; benchmarks/wheelhouse.py collects them")
    # Uses this Python's pip, because OUT has none.
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-compile"]
    target = next(python.parents[1].glob("lib/python*/site-packages"))
    subprocess.run([*command, "--no-cache-dir", "--upgrade", "--target", str(target), *files], check=True)
    print(f"installed {len(files)} wheels in {time.monotonic() - begun:.0f} s", flush=True)


def run(
    name: str, arguments: argparse.Namespace, python: Path, environment: dict[str, str], limit: float
) -> dict[str, Any]:
    """Run a part in a separate process; at its time limit, end it and all processes that it started."""
    out = arguments.out.resolve()
    command = [str(python), str(HERE / "gpu_parts.py"), name, "--out", str(out), "--device", arguments.device]
    begun, answer = time.monotonic(), out / f"{name}.json"
    answer.unlink(missing_ok=True)
    with open(out / f"{name}.log", "w") as log:
        process = subprocess.Popen(
            [*command, *(["--tiny"] if arguments.tiny else [])],
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=out,
            start_new_session=True,
        )
        try:
            code: int | None = process.wait(limit)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    part = {"part": name, "seconds": time.monotonic() - begun}
    if code is not None and answer.is_file():  # written last
        return part | json.loads(answer.read_text())
    lines = [line for line in (out / f"{name}.log").read_text(errors="replace").splitlines() if line.strip()]
    last = lines[-1].strip() if lines else "no output"
    reason = f"not ready after {limit:.0f} s; last line: {last}" if code is None else last
    return part | {"status": "failed", "reason": reason}


def in_words(part: dict[str, Any]) -> str:
    """Summarise the result of a part in one line."""
    if part["status"] != "ok":
        return str(part["reason"])
    return ", ".join(f"{name} {_number(value)}" for name, value in part["found"].items())


def _number(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return str(value)


def table(parts: list[dict[str, Any]]) -> str:
    """Markdown."""
    rows = ["| part | status | seconds | found |", "|---|---|---:|---|"]
    for part in parts:
        text = in_words(part).replace("|", "\\|")
        rows.append(f"| {part['part']} | {part['status']} | {part['seconds']:.0f} | {text} |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    sys.exit(main())
