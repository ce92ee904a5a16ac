"""A real Slurm of five nodes on this one machine, for the tests: four nodes with fake GPUs, one without.

    python -m tests.workflow.slurm.cluster up FOLDER      # as root; then sinfo, sbatch, snakemake --profile slurm ...
    python -m tests.workflow.slurm.cluster down FOLDER

Slurm reads its configuration only from /etc/slurm, so a machine can have one such cluster; if Slurm is configured
already, `up` refuses. All other files are in FOLDER. `down` ends only the daemons whose process ids are there.
The nodes claim the memory and cores of the profile. There is no munge, cgroup or slurmdbd; Slurm's accounting measures
and enforces memory every second.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

ETC = Path("/etc/slurm")
FILES = ("slurm.conf", "gres.conf", "cgroup.conf")
GPU_NODES = ("gpu1", "gpu2", "gpu3", "gpu4")
NODES = (*GPU_NODES, "cpu1")
GPUS_PER_NODE = 2

SLURM_CONF = """\
ClusterName=g2dtest
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/run/slurmctld.pid
SlurmdPidFile={folder}/run/slurmd-%n.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=1
JobAcctGatherParams=OverMemoryKill
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerParameters=sched_interval=2,bf_interval=2,sched_min_interval=0,batch_sched_delay=0
SlurmdParameters=config_overrides
GresTypes=gpu
ReturnToService=2
MinJobAge=3600
MessageTimeout=5
SlurmdTimeout=6
KillWait=20
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PropagateResourceLimits=NONE
{nodes}
PartitionName=cpu Nodes=cpu1 Default=YES MaxTime=INFINITE State=UP
PartitionName=gpu Nodes=gpu1,gpu2 MaxTime=INFINITE State=UP PriorityTier=1 GraceTime=60 PreemptMode=REQUEUE
PartitionName=flaky Nodes=gpu3,gpu4 MaxTime=INFINITE State=UP PriorityTier=1 GraceTime=20 PreemptMode=REQUEUE
PartitionName=urgent Nodes=gpu[1-4] MaxTime=INFINITE State=UP PriorityTier=9 PreemptMode=OFF
"""


class NoClusterError(RuntimeError):
    """Slurm cannot be started here, for the reason in the message."""


@dataclass(frozen=True)
class Cluster:
    """A cluster whose files are in `folder`."""

    folder: Path

    def up(self, owner: int | None = None) -> None:
        """Start all daemons and wait until every node is idle.

        A later `up` may remove the cluster if the process `owner` has ended.

        Raises:
            NoClusterError: Slurm's packages or root are missing, Slurm is configured here already, or a daemon failed.
        """
        missing = [name for name in ("slurmctld", "slurmd", "squeue") if shutil.which(name) is None]
        if missing:
            raise NoClusterError(
                f"{', '.join(missing)} not found: apt-get install slurm-wlm slurm-client slurmctld slurmd"
            )
        if os.geteuid() != 0:
            raise NoClusterError("Slurm's daemons need root")
        _remove_what_a_killed_run_left()
        if configured := [str(ETC / name) for name in FILES if os.path.lexists(ETC / name)]:
            raise NoClusterError(f"{configured[0]} exists: a configured Slurm is left alone")
        for name in ("state", "run", "log", "dev", *(f"spool.{node}" for node in NODES)):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        if owner is not None:
            (self.folder / "run/owner.pid").write_text(str(owner))
        self._configure()
        try:
            self.start_controller()
            for node in NODES:
                self.start_node(node)
            self._wait_until_idle()
        except BaseException:
            self.down()
            raise

    def _configure(self) -> None:
        ports = _free_ports(1 + len(NODES))
        host = socket.gethostname().split(".")[0]
        node = "NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=64 RealMemory=800000{gres}"
        lines = [
            node.format(name=name, host=host, port=port, gres=f" Gres=gpu:h100:{GPUS_PER_NODE}" * (name in GPU_NODES))
            for name, port in zip(NODES, ports[1:], strict=True)
        ]
        devices = [self.folder / f"dev/gpu{n}" for n in range(GPUS_PER_NODE)]
        try:
            for device in devices:
                os.mknod(device, 0o20666, os.makedev(1, 3))  # like /dev/null
        except PermissionError as error:
            raise NoClusterError(f"fake GPUs need device files, which cannot be made here: {error}") from error
        values = {"host": host, "folder": self.folder, "ports": ports, "nodes": "\n".join(lines)}
        (self.folder / "slurm.conf").write_text(SLURM_CONF.format(**values))
        gres = f"NodeName={','.join(GPU_NODES)} Name=gpu Type=h100 File={self.folder}/dev/gpu[0-{GPUS_PER_NODE - 1}]\n"
        (self.folder / "gres.conf").write_text(gres)
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        for name in FILES:
            (ETC / name).symlink_to(self.folder / name)

    def down(self) -> None:
        """End the running jobs and the daemons this cluster started, and take its configuration out of /etc/slurm."""
        if self.pid("slurmctld") is not None:
            subprocess.run(["scancel", "--me"], check=False, capture_output=True)
            subprocess.run(["scancel", "--me", "--signal=KILL"], check=False, capture_output=True)
        for node in NODES:
            self.stop(f"slurmd-{node}", signal.SIGTERM)
        self.stop("slurmctld", signal.SIGTERM)
        for name in FILES:
            link = ETC / name
            if link.is_symlink() and link.readlink() == self.folder / name:
                link.unlink()

    def wait_before_kill(self, seconds: int) -> None:
        """Change the KillWait of the running cluster."""
        file = self.folder / "slurm.conf"
        file.write_text(re.sub(r"^KillWait=.*$", f"KillWait={seconds}", file.read_text(), flags=re.M))
        _call(["scontrol", "reconfigure"])

    def pid(self, daemon: str) -> int | None:
        """Process id of a running daemon: `slurmctld`, or `slurmd-` and a node."""
        with suppress(FileNotFoundError, ValueError, ProcessLookupError):
            pid = int((self.folder / f"run/{daemon}.pid").read_text())
            command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]
            if command.decode().endswith(daemon.split("-", maxsplit=1)[0]):
                return pid
        return None

    def start_controller(self) -> None:
        """Start slurmctld with the state it last saved."""
        _call(["slurmctld"])

    def start_node(self, node: str) -> None:
        """Start a node's daemon."""
        _call(["slurmd", "-N", node])

    def stop(self, daemon: str, how: signal.Signals) -> None:
        """End a daemon and wait until it is gone; a slurmd without its controller does not end when asked."""
        if (pid := self.pid(daemon)) is None:
            return
        for sent in (how, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.kill(pid, sent)
            for _ in range(100):
                if _state_of(pid) in ("Z", ""):
                    return
                time.sleep(0.05)

    def lose_node(self, node: str) -> None:
        """Simulate a power cut of a node: kill its daemon, its jobs and their processes."""
        jobs = squeue("--nodelist", node, "--states=RUNNING,COMPLETING", "--format=%i")
        self.stop(f"slurmd-{node}", signal.SIGKILL)
        steps = [pid for pid, title in _titles() if any(title.startswith(f"slurmstepd: [{job}.") for job in jobs)]
        _send(signal.SIGSTOP, steps)  # none may live to report how its processes ended
        _send(signal.SIGKILL, [descendant for pid in steps for descendant in _descendants(pid)])
        _send(signal.SIGKILL, steps)

    def start_requeued(self, job: str) -> bool:
        """Start a job that Slurm requeued now, instead of after the two minutes for which it holds such jobs back.

        Returns:
            Whether it was requeued already.
        """
        if squeue("--jobs", job, "--states=PENDING", "--format=%i") != [job]:
            return False
        _call(["scontrol", "update", f"JobId={job}", "StartTime=now"])
        return True

    def _wait_until_idle(self) -> None:
        for _ in range(200):
            done = subprocess.run(["sinfo", "-h", "-N", "-o", "%T"], capture_output=True, text=True, check=False)
            if done.returncode == 0 and set(done.stdout.split()) == {"idle"}:
                return
            if self.pid("slurmctld") is None:
                break
            time.sleep(0.1)
        raise NoClusterError(
            f"the nodes do not become idle: {done.stdout.split()} {done.stderr.strip()}; see {self.folder}/log"
        )


def squeue(*arguments: str) -> list[str]:
    """Lines of squeue without its header."""
    done = subprocess.run(["squeue", "--noheader", *arguments], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def _send(sent: signal.Signals, pids: list[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, sent)


def _call(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NoClusterError(f"{' '.join(command)}: {done.stderr.strip()}")


def _free_ports(n: int) -> list[int]:
    sockets = [socket.socket() for _ in range(n)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def _remove_what_a_killed_run_left() -> None:
    """Remove links and daemons of a killed test session, recognised by the owner in its folder."""
    link = ETC / "slurm.conf"
    if not link.is_symlink():
        return
    folder = link.readlink().parent
    owner = folder / "run/owner.pid"
    if not owner.exists() and folder.exists():
        return
    if owner.exists() and _state_of(int(owner.read_text())) not in ("Z", ""):
        raise NoClusterError(f"a cluster of process {owner.read_text()} is running in {folder}")
    Cluster(folder).down()


def _state_of(pid: int) -> str:
    """One letter, as in /proc; empty for a process that does not exist."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return ""


def _titles() -> list[tuple[int, str]]:
    titles = []
    for entry in Path("/proc").iterdir():
        with suppress(ValueError, OSError):
            titles.append(
                (int(entry.name), (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
            )
    return titles


def _descendants(pid: int) -> list[int]:
    children = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in map(int, (task / "children").read_text().split()):
                children += [*_descendants(child), child]
    return children


if __name__ == "__main__":
    action, cluster = sys.argv[1], Cluster(Path(sys.argv[2]).resolve())
    try:
        cluster.up() if action == "up" else cluster.down()
    except NoClusterError as problem:
        sys.exit(f"slurm: {problem}")
