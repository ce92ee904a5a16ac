"""Results in a storage: every job runs in an empty folder, and only the storage and `G2D_WORK` are shared.

The storage is a folder (`snakemake-storage-plugin-fs`), so the test needs no network. `tests/workflow/apart` has the
executor, whose jobs are forks (`forked.py`).
"""

from __future__ import annotations

import copy
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from tests.workflow import as_python, forked
from tests.workflow.conftest import REPOSITORY, Project, read_profile
from tests.workflow.test_faults import steps, wait_for

HERE = Path(__file__).parent
POLICY = "results/micro/seed0/{}/g2/k8"
ADAPTER = "adapter/adapter_model.safetensors"
NEEDS_STORAGE = pytest.mark.skipif(
    find_spec("snakemake_storage_plugin_fs") is None or shutil.which("rsync") is None,
    reason="needs snakemake-storage-plugin-fs (pip install -e '.[test]') and rsync",
)


@pytest.fixture
def grid(own_micro_grid: Project, micro_config: dict[str, Any]) -> Project:
    """The finished micro grid with another K, not yet made."""
    config = copy.deepcopy(micro_config) | {"ablations": {}, "checkpoints": {"every_steps": 1}}
    config["warmup"] |= {"steps": [0, 8], "horizon": 12}
    own_micro_grid.configure(config)
    return own_micro_grid


@pytest.fixture
def storage(grid: Project, tmp_path: Path) -> Path:
    """The grid's problems, M0 and calibration, moved to a storage."""
    storage = tmp_path / "storage"
    for part in ("problems", "micro/base", "micro/calibration"):
        shutil.copytree(grid.results / part, storage / "results" / part)
    grid.copied(tmp_path / "local")
    shutil.rmtree(grid.results)
    shutil.rmtree(grid.root / ".snakemake")
    return storage


def in_storage(storage: Path, *arguments: str) -> list[str]:
    place = ["--default-storage-provider", "fs", "--default-storage-prefix", str(storage)]
    return [*arguments, *place, "--shared-fs-usage", "none"]


@NEEDS_STORAGE
def test_jobs_that_share_only_a_storage_make_the_same_bytes(grid: Project, storage: Path, tmp_path: Path) -> None:
    """A training is killed (-9), and its next attempt, in another folder, goes on from the last checkpoint."""
    places, local = tmp_path / "work", Project(tmp_path / "local")
    (tmp_path / "tmp").mkdir()
    target = f"{POLICY.format('dpo')}/eval/arithmetic.parquet"
    python, plugin = Path(sys.executable).parent, HERE / "apart"
    environment = {
        "G2D_WORK": str(places),
        "APART_PYTHON": forked.python(),
        as_python.DOOR_OF_SCRIPTS: as_python.HEAVY,
        "PATH": f"{python}{os.pathsep}{os.environ['PATH']}",  # jobs find Snakemake as in an image
        "PYTHONPATH": f"{grid.root / 'src'}{os.pathsep}{plugin}",
        "TMPDIR": str(tmp_path / "tmp"),
    }
    command = ["-m", "snakemake", "--executor", "apart", "--jobs", "1", "--retries", "1", target]
    command += ["--seconds-between-status-checks", "1"]
    process = subprocess.Popen(**grid.process(*in_storage(storage, *command), **environment))
    work = places / POLICY.format("grpo") / "work"
    wait_for(lambda: steps(work) >= 3, process)
    os.kill(int((work / ".lock").read_text().split()[0]), signal.SIGKILL)
    output, _ = process.communicate()
    assert process.returncode == 0, output

    log = (storage / "results/logs/train_grpo/micro/seed0/g2/k8.log").read_text()
    assert "goes on from step" in log
    assert not any(places.rglob("step-*"))
    local.build("--", target)
    for file in (*(f"{POLICY.format(name)}/{ADAPTER}" for name in ("grpo", "dpo")), target):
        assert (storage / file).read_bytes() == (local.root / file).read_bytes(), file
    again = grid.snakemake("-n", *in_storage(storage, target))
    assert "Nothing to be done" in again.stdout
    (storage / POLICY.format("harvest") / "pairs.jsonl").unlink()
    planned = grid.planned(*in_storage(storage, target))
    assert planned.keys() == {"build_pairs", "train_dpo", "evaluate"}


# --------------------------------------------------------------------------------------------------------- Kubernetes


@pytest.fixture
def submitted(tmp_path: Path) -> Iterator[list[dict[str, Any]]]:
    """Jobs and secrets that were posted to an API server without a cluster; every job has failed at once."""
    posted: list[dict[str, Any]] = []

    class Api(BaseHTTPRequestHandler):
        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if self.command == "POST":
                posted.append(json.loads(body))
            ended = {"metadata": {}, "status": {"failed": 1}} if "/jobs/" in self.path else {"items": []}
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(body if self.command == "POST" else json.dumps(ended).encode())

        do_GET = do_POST = do_DELETE = answer  # noqa: N815 -- names of http.server

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Api)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    (tmp_path / "kubeconfig").write_text(
        yaml.safe_dump(
            {
                "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
                "users": [{"name": "u", "user": {}}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "x",
            }
        )
    )
    yield posted
    server.shutdown()


def require_valid(manifest: dict[str, Any]) -> None:
    """Require that the Kubernetes client's model of a manifest's kind has all of its keys, and the required ones."""
    from kubernetes.client import ApiClient

    client, kind = ApiClient(), f"V1{manifest['kind']}"
    read = client.deserialize(SimpleNamespace(data=json.dumps(manifest)), kind)
    assert client.sanitize_for_serialization(read) == manifest


@NEEDS_STORAGE
@pytest.mark.skipif(
    find_spec("snakemake_executor_plugin_kubernetes") is None, reason="needs snakemake-executor-plugin-kubernetes"
)
def test_a_gpu_job_on_kubernetes(grid: Project, storage: Path, submitted: list[dict[str, Any]], tmp_path: Path) -> None:
    target = f"{POLICY.format('grpo')}/policy.json"
    profile = ["--profile", "profiles/kubernetes", "--configfile", "config/config.yaml", "--retries", "0"]
    kubeconfig = str(tmp_path / "kubeconfig")  # is read when the client is imported
    grid.refused(*in_storage(storage, target, *profile), anew=True, KUBECONFIG=kubeconfig)
    secret, job = submitted
    assert set(secret["data"]) >= {"hf_home", "vllm_cache_root", "g2d_work"}
    require_valid({"kind": "Job", **job})
    pod = job["spec"]["template"]["spec"]
    [container] = pod["containers"]
    for resources in container["resources"].values():
        assert resources["nvidia.com/gpu"] == "1"
        assert resources["memory"] == "64000M"
    assert container["resources"]["limits"]["cpu"] == "8000m"
    assert {"name": "g2d", "mountPath": "/g2d"} in container["volumeMounts"]
    assert {"name": "g2d", "persistentVolumeClaim": {"claimName": "g2d"}} in pod["volumes"]
    assert {variable["name"] for variable in container["env"]} >= {"HF_HOME", "VLLM_CACHE_ROOT", "G2D_WORK"}
    assert "--deploy-sources" in container["args"][1]
    assert "--default-storage-prefix" in container["args"][1]
    assert str(storage) in container["args"][1]


@pytest.mark.skipif(find_spec("kubernetes") is None, reason="needs the Kubernetes client")
def test_the_pod_that_runs_snakemake_may_do_what_its_plugin_does() -> None:
    with open(REPOSITORY / "profiles/kubernetes/snakemake.yaml", encoding="utf-8") as file:
        manifests = {manifest["kind"]: manifest for manifest in yaml.safe_load_all(file)}
    for manifest in manifests.values():
        require_valid(manifest)
    [container] = manifests["Pod"]["spec"]["containers"]
    profile = read_profile("kubernetes")
    assert container["image"] == profile["container-image"]
    [mount], [volume] = container["volumeMounts"], manifests["Pod"]["spec"]["volumes"]
    claim = volume["persistentVolumeClaim"]["claimName"]
    assert profile["kubernetes-persistent-volumes"] == [f"{claim}:{mount['mountPath']}"]
    assert claim == manifests["PersistentVolumeClaim"]["metadata"]["name"]
