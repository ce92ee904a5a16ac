"""The trash: files moved from the results to `results/.trash/{time}/`; only their owner deletes them."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable
from itertools import count
from pathlib import Path

FOLDER = ".trash"


def to_trash(results: Path, paths: Iterable[Path]) -> str:
    """Move files and folders of a results folder into its trash, under the names that they have below `results`; one
    line that says where they are and how to bring them back."""
    paths = list(paths)
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    names = (stamp if i == 0 else f"{stamp}-{i}" for i in count())
    place = next(place for name in names if not (place := results / FOLDER / name).exists())
    for path in paths:
        target = place / path.relative_to(results)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(path, target)
    what = str(paths[0]) if len(paths) == 1 else f"{len(paths)} files and folders"
    return f"moved {what} to {place}; to bring back: cp -a {place}/. {results}"
