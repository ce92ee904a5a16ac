"""The recipes of the image: all versions come from the constraints, and both recipes do the same."""

from __future__ import annotations

import re
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
DOCKERFILE = (REPOSITORY / "envs/Dockerfile").read_text()
DEFINITION = (REPOSITORY / "envs/g2d-gpu.def").read_text()


def copied() -> set[str]:
    """Files that the Dockerfile copies from the repository."""
    return set(" ".join(re.findall(r"^COPY (.+) \S+$", DOCKERFILE, re.M)).split())


def test_versions_and_registries_are_named_elsewhere() -> None:
    for recipe in (DOCKERFILE, DEFINITION):
        (install,) = re.findall(r"pip install .*", recipe)
        assert "--constraint envs/constraints.txt" in install
        assert re.findall(r"\d+\.\d+", recipe) == ["3.11"]  # the version of Python, in the base image's tag
        assert not re.search(r"https?://|index-url", recipe)


def test_both_recipes_take_the_same_steps() -> None:
    assert "ARG EXTRAS=vllm\n" in DOCKERFILE
    steps = re.findall(r"^RUN (.*)", DOCKERFILE.replace("${EXTRAS}", "vllm"), re.M)
    assert len(steps) == 2
    for step in steps:
        assert f"    {step}\n" in DEFINITION
    [base] = re.findall(r"^FROM (\S+)$", DOCKERFILE, re.M)
    assert re.findall(r"^From: (\S+)$", DEFINITION, re.M) == [base]
    assert set(re.findall(r"^    (\S+) /opt/g2d/", DEFINITION, re.M)) == copied()


def test_the_build_context_has_only_copied_files() -> None:
    """No results, weights or environments of a checkout are sent to the builder."""
    ignored = (REPOSITORY / ".dockerignore").read_text()
    assert re.findall(r"^[^#].*", ignored, re.M)[0] == "*"
    assert set(re.findall(r"^!(.+)", ignored, re.M)) == copied()
    for name in copied():
        assert (REPOSITORY / name).exists(), name
