"""Collect what a machine without a network lacks to run g2d, for `python benchmarks/gpu.py --wheels FOLDER` there.

    pip list --format=freeze > has.txt                                              # on that machine
    .venv/bin/python benchmarks/wheelhouse.py FOLDER --python 3.12 --has has.txt    # here, where there is a network

What is missing follows from the metadata of the packages installed here. What the machine has stays as it is,
unless a package that is carried asks for another version. torch is never carried, nor the converter of figures (33 MB),
which the parts do without. With no list the machine is taken to have torch, transformers and what they name. For x86-64
Linux.
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
NEVER = frozenset({"torch", "vl-convert-python"})
SOURCES = frozenset({"connection-pool"})  # published without a wheel; pure Python
PLATFORMS = [*(f"manylinux_2_{glibc}_x86_64" for glibc in (17, 24, 27, 28, 31, 34)), "manylinux2014_x86_64"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where to collect the wheels")
    parser.add_argument(
        "--python", default=f"{sys.version_info[0]}.{sys.version_info[1]}", help="of that machine: 3.12"
    )
    parser.add_argument("--has", type=Path, help="its packages, a NAME==VERSION a line")
    parser.add_argument("--list", action="store_true", help="say what is missing, and collect nothing")
    own = parser.parse_args()
    wanted = missing(read_list(own.has.read_text()) if own.has else None, own.python)
    pins = {name: f"{name}=={distribution(name).version}" for name in wanted}
    if own.list:
        print("\n".join(pins.values()))
        return 0
    own.folder.mkdir(parents=True, exist_ok=True)
    pip = [sys.executable, "-m", "pip"]
    for name in SOURCES & set(pins):
        subprocess.run([*pip, "wheel", "--quiet", "--no-deps", "--wheel-dir", own.folder, pins.pop(name)], check=True)
    here = [*(word for name in PLATFORMS for word in ("--platform", name)), "--implementation", "cp"]
    download = [*pip, "download", "--quiet", "--no-deps", "--only-binary=:all:", "--python-version", own.python]
    subprocess.run([*download, *here, "--dest", own.folder, *pins.values()], check=True)
    wheels = list(own.folder.glob("*.whl"))
    print(f"{len(wheels)} wheels, {sum(wheel.stat().st_size for wheel in wheels) / 1e6:.0f} MB, in {own.folder}")
    return 0


def read_list(text: str) -> dict[str, str]:
    """Versions by name, from `pip list --format=freeze`."""
    pairs = (line.split("==") for line in text.splitlines() if "==" in line)
    return {canonicalize_name(name): version.strip() for name, version in pairs}


def missing(has: dict[str, str] | None, python: str) -> list[str]:
    """What g2d needs on a machine with these packages, sorted.

    Args:
        has: versions by name; None: torch, transformers and what these name, in whatever version.
        python: the machine's, as 3.12.
    """
    if has is None:
        direct = (needed.name for name in TAKEN_TO_BE_THERE for needed in needs(name, python))
        has = dict.fromkeys(map(canonicalize_name, [*TAKEN_TO_BE_THERE, *direct]), "")
    found: set[str] = set()
    waiting = ["g2d"]
    while waiting:
        asking = waiting.pop()
        for requirement in needs(asking, python):
            name = canonicalize_name(requirement.name)
            # g2d's own pins are what it is tested with; what a package asks for, it needs.
            fits = asking == "g2d" or not has.get(name) or requirement.specifier.contains(has[name], prereleases=True)
            if name not in found | NEVER and not (name in has and fits):
                found.add(name)
                waiting.append(name)
    return sorted(found)


def needs(name: str, python: str) -> Iterator[Requirement]:
    """What a package that is installed here requires under a version of Python, without extras."""
    there = {name: str(value) for name, value in default_environment().items()}
    there |= {"python_version": python, "python_full_version": f"{python}.0", "extra": ""}
    for requirement in map(Requirement, requires(name) or ()):
        if requirement.marker is None or requirement.marker.evaluate(there):
            yield requirement


if __name__ == "__main__":
    sys.exit(main())
