"""A model of the Hub through the real workflow: fetched once, where there is a network, and never asked for again.

A local server plays the Hub; it knows one repository, whose files are those of the micro grid's base model.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from g2d.policies import read_policy
from tests.workflow.conftest import SECRET, Project

SHA = "c0ffee" + "0" * 34


class Repository(ThreadingHTTPServer):
    """The Hub with one model, `someone/model`, that also has pickled weights, code and a picture."""

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = files
        self.requests: list[str] = []
        self.tokens: set[str | None] = set()


class Handler(BaseHTTPRequestHandler):
    server: Repository

    def do_GET(self) -> None:
        self.server.requests.append(self.path)
        self.server.tokens.add(self.headers.get("Authorization"))
        path = self.path.partition("?")[0]
        if path.startswith("/api/models/someone/model/tree/"):
            sizes = {name: len(body) for name, body in self.server.files.items()}
            tree = [{"type": "file", "path": name, "size": size, "oid": SHA} for name, size in sizes.items()]
            self._answer(json.dumps(tree).encode())
        elif path.startswith("/api/models/someone/model"):
            siblings = [{"rfilename": name, "size": len(body)} for name, body in self.server.files.items()]
            self._answer(json.dumps({"id": "someone/model", "sha": SHA, "siblings": siblings}).encode())
        elif path.startswith(prefix := f"/someone/model/resolve/{SHA}/") and path[len(prefix) :] in self.server.files:
            self._answer(self.server.files[path[len(prefix) :]])
        else:
            self.send_response(404)
            self.end_headers()

    do_HEAD = do_GET  # noqa: N815 - the name that http.server looks for

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", f'"{hashlib.sha256(body).hexdigest()}"')
        self.send_header("X-Repo-Commit", SHA)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def hub(micro_grid: Project) -> Iterator[Repository]:
    model = micro_grid.results / "micro/base/model"
    files = {file.name: file.read_bytes() for file in model.iterdir() if file.is_file()}
    server = Repository(files | {"pytorch_model.bin": b"pickle", "code.py": b"", "picture.png": b""})
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def project(tmp_path: Path, micro_config: dict[str, Any]) -> Project:
    model = {"source": "hub", "id": "someone/model", "revision": SHA}
    small = {"calibration": micro_config["calibration"] | {"problems_per_level": 2, "samples_per_prompt": 1}}
    return Project.create(tmp_path / "g2d", micro_config | small | {"models": {"mine": model}})


def run(project: Project, hub: Repository, target: str) -> str:
    endpoint = f"http://127.0.0.1:{hub.server_port}"
    cache = str(project.root / "cache")
    done = project.snakemake("--cores", "1", target, HF_HUB_OFFLINE="0", HF_ENDPOINT=endpoint, HF_HOME=cache)
    return done.stdout if done.returncode == 0 else f"failed: {done.stdout}"


def test_everything_after_the_fetch_runs_without_the_hub(project: Project, hub: Repository) -> None:
    said = run(project, hub, "results/mine/base/policy.json")
    assert not said.startswith("failed"), said
    policy = read_policy(project.results / "mine/base/policy.json")
    assert policy.revision == SHA
    fetched = {file.name for file in Path(policy.base).iterdir()}
    assert fetched == hub.files.keys() - {"pytorch_model.bin", "code.py", "picture.png"}
    assert f"Bearer {SECRET}" in hub.tokens  # this is what a token is for

    hub.requests.clear()
    said = run(project, hub, "results/mine/calibration/rollouts.parquet")
    assert not said.startswith("failed"), said
    assert (project.results / "mine/calibration/rollouts.parquet").exists()
    assert hub.requests == []


def test_a_repository_without_safetensors_is_refused(project: Project, hub: Repository) -> None:
    del hub.files["model.safetensors"]
    said = run(project, hub, "results/mine/base/policy.json")
    assert said.startswith("failed")
    assert "pretrained_model: someone/model at c0ffee00: no *.safetensors in it" in said
    assert not (project.results / "mine/base/policy.json").exists()
