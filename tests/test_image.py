"""The recipes of the image: all versions come from the constraints, and both recipes do the same."""

from __future__ import annotations

import re
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
DOCKERFILE = (REPOSITORY / "envs/Dockerfile").read_text()
DEFINITION = (REPOSITORY / "envs/g2d-gpu.def").read_text()


def copied() -> set[str]:
    """Files that the Dockerfile copies from the repository."""
    return {name for line in re.findall(r"^COPY (.+) \S+$", DOCKERFILE, re.M) for name in line.split()}


def test_versions_and_registries_are_named_elsewhere() -> None:
    for recipe in (DOCKERFILE, DEFINITION):
        (install,) = re.findall(r"pip install .*", recipe)
        assert "--constraint envs/constraints.txt" in install
        assert re.findall(r"\d+\.\d+", recipe) == ["3.11"]  # the version of Python, in the base image's tag
        assert not re.search(r"https?://|index-url", recipe)


def test_both_recipes_take_the_same_steps() -> None:
    steps = [
        line.removeprefix("RUN ").replace("${EXTRAS}", "vllm") for line in re.findall(r"^RUN .*", DOCKERFILE, re.M)
    ]
    assert len(steps) == 2 and "ARG EXTRAS=vllm\n" in DOCKERFILE
    assert all(f"    {step}\n" in DEFINITION for step in steps)
    bases = [
        re.search(rf"^{word} (\S+)$", recipe, re.M) for word, recipe in (("FROM", DOCKERFILE), ("From:", DEFINITION))
    ]
    assert bases[0] and bases[1] and bases[0][1] == bases[1][1]
    assert set(re.findall(r"^    (\S+) /opt/g2d/", DEFINITION, re.M)) == copied()


def test_the_build_context_has_only_copied_files() -> None:
    """No results, weights or environments of a checkout are sent to the builder."""
    first, *rest = [line for line in (REPOSITORY / ".dockerignore").read_text().splitlines() if line[0] != "#"]
    assert first == "*"
    assert {line[1:] for line in rest if line.startswith("!")} == copied()
    assert all((REPOSITORY / name).exists() for name in copied())
