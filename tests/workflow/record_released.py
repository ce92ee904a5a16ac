"""Record the parameters of this version's jobs for `test_released.py`: `python -m tests.workflow.record_released`.

Replaces `released/{version}`: shipped configurations without comments, and the parameters of their jobs. Jobs of tables
and the page are left out: they read the whole configuration and take seconds. Run it once before a release.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from g2d import __version__
from g2d.grid.versions import ORDER

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CONFIGURATIONS = ("bridging", "config", "off_policy", "paper")
RECORDED = ORDER[: ORDER.index("make_tables")]


def planned_params(config: Path) -> dict[str, Any]:
    with TemporaryDirectory() as folder:
        arguments = ["--snakefile", str(ROOT / "Snakefile"), "--directory", folder, "--configfile", str(config)]
        command = [sys.executable, str(HERE / "planned_params.py"), *arguments]
        printed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    planned = json.loads(printed[printed.index("{\n") :])
    return {rule: planned[rule] for rule in planned if rule in RECORDED}


def main() -> None:
    folder = HERE / "released" / __version__
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in CONFIGURATIONS:
        values = yaml.safe_load((ROOT / "config" / f"{name}.yaml").read_text())
        config = folder / f"{name}.yaml"
        config.write_text(yaml.safe_dump(values, sort_keys=False))
        params = json.dumps(planned_params(config), indent=1)
        (folder / f"{name}.params.json").write_text(f"{params}\n")


if __name__ == "__main__":
    main()
