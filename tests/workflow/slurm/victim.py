"""A job that writes down every start, end and SIGTERM it sees, works for as long as its fault needs, and then succeeds.

`memory` takes more than its first attempt may have, `time` longer; the others work a while at their first start.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path


def main(snakemake):
    fault = snakemake.wildcards.get("fault", "prepared")
    diary = Path(f"diary/{fault}.jsonl")
    diary.parent.mkdir(exist_ok=True)
    start = diary.read_text().count('"start"') if diary.exists() else 0

    def note(event):
        job, node, gpu = (os.environ.get(key) for key in ("SLURM_JOB_ID", "SLURMD_NODENAME", "CUDA_VISIBLE_DEVICES"))
        with diary.open("a") as file:
            print(json.dumps({"event": event, "time": time.time(), "job": job, "node": node, "gpu": gpu}), file=file)

    def save(*_):
        note("SIGTERM")
        time.sleep(3)  # what writing a checkpoint takes
        note("saved")
        sys.exit(1)

    signal.signal(signal.SIGTERM, save)
    note("start")
    if fault == "memory":
        held = b"x" * 700_000_000
        time.sleep(5)
        del held
    elif fault == "time":
        time.sleep(0 if snakemake.resources.runtime > 1 else 3600)
    elif fault != "prepared":
        time.sleep(0 if start else config_seconds(snakemake))
    Path(snakemake.output[0]).write_text(f"start {start}\n")
    note("end")


def config_seconds(snakemake):
    return snakemake.config.get("seconds", 3600)


if __name__ == "__main__":
    main(snakemake)
