"""Collect packages that g2d needs on a machine without a network, for `python benchmarks/gpu.py --wheels FOLDER`.

    pip list --format=freeze > has.txt                                              # on that machine
    .venv/bin/python benchmarks/wheelhouse.py FOLDER --python 3.12 --has has.txt    # on one with a network

The list follows from the metadata of the packages installed here. Installed packages of the machine are kept, unless a
collected package needs another version. torch is never collected, nor what the parts do without: the converter of
figures (33 MB) and the solvers of Snakemake's default scheduler (16 MB). Without a list, the machine is assumed to have
torch, transformers and their requirements. The wheels are for x86-64 Linux.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import distribution, requires
from pathlib import Path

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

TAKEN_TO_BE_THERE = ("torch", "transformers")
NEVER = frozenset({"torch", "vl-convert-python", "pulp"})
SOURCES = frozenset({"connection-pool"})  # published without a wheel; pure Python
PLATFORMS = [*(f"manylinux_2_{glibc}_x86_64" for glibc in (17, 24, 27, 28, 31, 34)), "manylinux2014_x86_64"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where to collect the wheels")
    parser.add_argument(
        "--python", default=f"{sys.version_info[0]}.{sys.version_info[1]}", help="of that machine: 3.12"
    )
    parser.add_argument("--has", type=Path, help="its packages, a NAME or NAME==VERSION a line")
    parser.add_argument("--list", action="store_true", help="say what is missing, and collect nothing")
    options = parser.parse_args()
    wanted = missing(read_list(options.has.read_text()) if options.has else None, options.python)
    pins = {name: f"{name}=={distribution(name).version}" for name in wanted}
    if options.list:
        print("\n".join(pins.values()))
        return 0
    options.folder.mkdir(parents=True, exist_ok=True)
    pip = [sys.executable, "-m", "pip"]
    for name in SOURCES & set(pins):
        subprocess.run(
            [*pip, "wheel", "--quiet", "--no-deps", "--wheel-dir", options.folder, pins.pop(name)], check=True
        )
    here = [*(word for name in PLATFORMS for word in ("--platform", name)), "--implementation", "cp"]
    download = [*pip, "download", "--quiet", "--no-deps", "--only-binary=:all:", "--python-version", options.python]
    subprocess.run([*download, *here, "--dest", options.folder, *pins.values()], check=True)
    wheels = list(options.folder.glob("*.whl"))
    print(f"{len(wheels)} wheels, {sum(wheel.stat().st_size for wheel in wheels) / 1e6:.0f} MB, in {options.folder}")
    return 0


def read_list(text: str) -> dict[str, str]:
    """Return versions by name, "" for one that is not named."""
    pairs = (line.partition("==") for line in text.split())
    return {canonicalize_name(name): version for name, _, version in pairs}


def missing(has: dict[str, str] | None, python: str) -> list[str]:
    """Return the packages that g2d needs on a machine with these, sorted.

    Args:
        has: versions by name, "" for any; None for torch, transformers and their requirements.
        python: version of Python on the machine, for example 3.12.
    """
    if has is None:
        direct = (needed.name for name in TAKEN_TO_BE_THERE for needed in needs(name, python))
        has = dict.fromkeys(map(canonicalize_name, [*TAKEN_TO_BE_THERE, *direct]), "")
    names: set[str] = set()
    waiting = ["g2d"]
    while waiting:
        asking = waiting.pop()
        for requirement in needs(asking, python):
            name = canonicalize_name(requirement.name)
            # Requirements of packages must hold; g2d's pins are only the tested versions.
            fits = asking == "g2d" or not has.get(name) or requirement.specifier.contains(has[name], prereleases=True)
            if name not in names | NEVER and not (name in has and fits):
                names.add(name)
                waiting.append(name)
    return sorted(names)


def needs(name: str, python: str) -> Iterator[Requirement]:
    """Yield the requirements of an installed package under a version of Python, without extras."""
    environment = {name: str(value) for name, value in default_environment().items()}
    environment |= {"python_version": python, "python_full_version": f"{python}.0", "extra": ""}
    for requirement in map(Requirement, requires(name) or ()):
        if requirement.marker is None or requirement.marker.evaluate(environment):
            yield requirement


if __name__ == "__main__":
    sys.exit(main())
