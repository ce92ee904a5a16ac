"""A job that writes down every start, SIGTERM and end it sees, for the tests to read.

The first attempt of `memory` holds too much memory, that of `time` never ends; `stubborn` ignores SIGTERM. The others
fail in their first `config["fails"]` starts. In the next `config["works"]` starts they work for an hour, for
`config["seconds"]`, or until the test makes the file `.enough`.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path


def main(snakemake):
    fault = Path(snakemake.output[0]).stem
    diary = Path(f"diary/{fault}.jsonl")
    diary.parent.mkdir(exist_ok=True)
    starts = diary.read_text().count('"start"') if diary.exists() else 0

    def note(event):
        job, node, gpu = (os.environ.get(key) for key in ("SLURM_JOB_ID", "SLURMD_NODENAME", "CUDA_VISIBLE_DEVICES"))
        entry = {"event": event, "time": time.time(), "job": job, "node": node, "gpu": gpu}
        with diary.open("a") as file:
            file.write(json.dumps(entry) + "\n")

    def save(*_):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a limit that is over follows the warning
        note("SIGTERM")
        time.sleep(1)  # duration of a checkpoint
        note("saved")
        sys.exit(1)

    signal.signal(signal.SIGTERM, signal.SIG_IGN if fault == "stubborn" else save)
    note("start")
    if fault == "memory":
        held = b"x" * 700_000_000
        time.sleep(4 if snakemake.resources.mem_mb > len(held) / 1e6 else 3600)
        del held
    elif fault == "time":
        time.sleep(0 if snakemake.resources.runtime > 60 else 3600)
    elif starts < (fails := snakemake.config["fails"].get(fault, 0)):
        sys.exit(1)
    elif starts < fails + snakemake.config["works"].get(fault, 0):
        end = time.monotonic() + snakemake.config["seconds"].get(fault, 3600)
        while time.monotonic() < end and not Path(f"diary/{fault}.enough").exists():
            time.sleep(0.1)
    Path(snakemake.output[0]).write_text(f"{snakemake.params.get('settings')}\n")
    note("end")


if __name__ == "__main__":
    main(snakemake)  # type: ignore[name-defined]
