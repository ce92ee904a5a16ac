"""A model and a data set of the Hub in the real workflow: fetched once, then used without a network.

A local server plays the Hub, with two repositories: the micro grid's base model and a data set.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from g2d.jobs.digests import MARK
from g2d.jobs.files import read_json
from g2d.policies import read_policy
from g2d.problems import read_problems
from tests.rewards.models import reward_model
from tests.workflow.changed_files import changed
from tests.workflow.conftest import SECRET, Project
from tests.workflow.micro import SECTION

SHA = "c0ffee" + "0" * 34


class Hub(ThreadingHTTPServer):
    """Repositories by their place below the Hub's address; the model also has pickled weights, code and a picture."""

    def __init__(self, repositories: dict[str, dict[str, bytes]]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.repositories = repositories
        self.requests: list[str] = []
        self.tokens: set[str | None] = set()


class Handler(BaseHTTPRequestHandler):
    server: Hub

    def do_GET(self) -> None:
        self.server.requests.append(self.path)
        self.server.tokens.add(self.headers.get("Authorization"))
        body = self._body(self.path.partition("?")[0])
        self.send_response(404 if body is None else 200)
        if body is not None:
            self.send_header("Content-Length", str(len(body)))
            self.send_header("ETag", f'"{hashlib.sha256(body).hexdigest()}"')
            self.send_header("X-Repo-Commit", SHA)
        self.end_headers()
        if body is not None and self.command == "GET":
            self.wfile.write(body)

    do_HEAD = do_GET  # noqa: N815 - the name that http.server looks for

    def _body(self, path: str) -> bytes | None:
        for place, files in self.server.repositories.items():
            api = f"/api/{place}" if place.startswith("datasets/") else f"/api/models/{place}"
            file = f"/{place}/resolve/{SHA}/"
            if path.startswith(file):
                return files.get(path.removeprefix(file))
            if path.startswith(api):
                tree = []
                siblings = []
                for name, body in files.items():
                    tree.append({"type": "file", "path": name, "size": len(body), "oid": SHA})
                    siblings.append({"rfilename": name, "size": len(body)})
                whole = {"id": place.removeprefix("datasets/"), "sha": SHA, "siblings": siblings}
                return json.dumps(tree if path.startswith(f"{api}/tree/") else whole).encode()
        return None

    def log_message(self, *arguments: object) -> None:
        pass


EVALUATION = "results/mine/base/eval/more.parquet"
MODEL = "someone/model"
DATASET = "datasets/someone/problems"
CARD = """\
---
configs:
- config_name: main
  data_files: [{split: test, path: test.jsonl}]
---
"""
ROWS = """\
{"question": "Compute 10 + 1.", "answer": "One more than 10.\\n#### 11"}
{"question": "Compute 11 + 1.", "answer": "One more than 11.\\n#### 12"}
"""


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.name != MARK}


@pytest.fixture(scope="module")
def hub(micro_grid: Project) -> Iterator[Hub]:
    model = contents(micro_grid.results / "micro/base/model")
    model |= {"pytorch_model.bin": b"pickle", "code.py": b"", "picture.png": b""}
    server = Hub({MODEL: model, DATASET: {"README.md": CARD.encode(), "test.jsonl": ROWS.encode()}})
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def config(micro_config: dict[str, Any]) -> dict[str, Any]:
    model = {"source": "hub", "id": "someone/model", "revision": SHA}
    problems = {"source": "hub", "id": "someone/problems", "subset": "main", "split": "test", "revision": SHA}
    columns = {"fields": {"prompt": "question", "answer": "answer"}, "answer_format": "gsm8k"}
    return micro_config | {"models": {"mine": model}, "benchmarks": {"more": problems | columns}}


@pytest.fixture(scope="module")
def fetched(config: dict[str, Any], hub: Hub, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project with the base model and the problems."""
    project = Project.create(tmp_path_factory.mktemp("fetched") / "g2d", config)
    output = run(project, hub, "results/mine/base/policy.json", "results/problems/more.jsonl")
    assert not output.startswith("failed"), output
    return project


def run(project: Project, hub: Hub | None, *targets: str) -> str:
    """Run Snakemake with this cache; without a hub it is offline, and its jobs are forks."""
    variables = {"HF_HOME": str(project.root / "cache")}
    if hub is not None:
        variables |= {"HF_HUB_OFFLINE": "0", "HF_ENDPOINT": f"http://127.0.0.1:{hub.server_port}"}
    done = project.snakemake("--cores", "1", *targets, **variables)
    return done.stdout if done.returncode == 0 else f"failed: {done.stdout}"


def test_m0_is_fetched_without_pickles_and_code(fetched: Project, hub: Hub) -> None:
    policy = read_policy(fetched.results / "mine/base/policy.json")
    others = {"pytorch_model.bin", "code.py", "picture.png"}
    assert policy.revision == SHA
    assert contents(fetched.root / policy.base).keys() == hub.repositories[MODEL].keys() - others
    for file in (fetched.root / "cache").rglob("*"):
        assert file.name not in others


def test_problems_are_fetched_with_their_answers(fetched: Project) -> None:
    first, second = read_problems(fetched.results / "problems/more.jsonl")
    assert (first.prompt, first.answer) == ("Compute 10 + 1.", "11")
    assert (second.prompt, second.answer) == ("Compute 11 + 1.", "12")


def test_problems_name_the_revision_that_they_are_from(fetched: Project) -> None:
    for problem in read_problems(fetched.results / "problems/more.jsonl"):
        assert problem.source == f"hub:someone/problems@{SHA}"
    assert read_json(fetched.results / "problems/more.manifest.json")["source"]["revision"] == SHA


def test_the_hub_is_asked_with_the_token_of_the_user(fetched: Project, hub: Hub) -> None:
    assert f"Bearer {SECRET}" in hub.tokens


def test_everything_after_the_fetch_runs_without_the_hub(fetched: Project, hub: Hub) -> None:
    hub.requests.clear()
    output = run(fetched, hub, EVALUATION)
    assert not output.startswith("failed"), output
    problems = pd.DataFrame(read_problems(fetched.results / "problems/more.jsonl"))
    answered = pd.read_parquet(fetched.root / EVALUATION)
    assert list(answered["problem_id"]) == list(problems["problem_id"])
    assert hub.requests == []


def test_files_of_m0_that_changed_are_refused_and_made_again(fetched: Project, hub: Hub) -> None:
    """The weights are in the Hub's cache, the other files in the results."""
    folder = "results/mine/base/model"
    before = contents(fetched.root / folder)
    (fetched.root / EVALUATION).unlink(missing_ok=True)
    blob = (fetched.root / folder / "model.safetensors").resolve()
    again = f"the same snakemake command with -R {folder}"
    for name, fix in (
        ("chat_template.jinja", f"put it back, or have it made again: {again}"),
        ("model.safetensors", f"put {blob} back (delete it if it is in the Hub's cache), then {again}"),
    ):
        with changed((fetched.root / folder / name).resolve()):
            output = run(fetched, None, EVALUATION)
        assert output.startswith("failed")
        refusal = f"evaluate: {folder}/{name}: not the file that pretrained_model/mine recorded: sha256 "
        assert re.search(rf"^{re.escape(refusal)}.*; {re.escape(fix)}$", output, re.M), output
    (fetched.root / folder / "chat_template.jinja").write_text("changed")
    blob.unlink()
    output = run(fetched, hub, "-R", folder, "--", EVALUATION)
    assert not output.startswith("failed"), output
    assert contents(fetched.root / folder) == before
    assert not run(fetched, None, EVALUATION).startswith("failed")


def test_a_repository_without_safetensors_is_refused(
    config: dict[str, Any], hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(hub.repositories[MODEL], "model.safetensors")
    project = Project.create(tmp_path / "g2d", config)
    output = run(project, hub, "results/mine/base/policy.json")
    assert output.startswith("failed")
    assert "pretrained_model: someone/model at c0ffee00: no *.safetensors in it" in output
    assert not (project.results / "mine/base/policy.json").exists()


def test_a_reward_model_is_fetched_before_the_first_job_that_judges_by_it(
    fetched: Project, config: dict[str, Any], hub: Hub, tmp_path: Path
) -> None:
    files = contents(reward_model(tmp_path / "judge"))
    hub.repositories["someone/judge"] = files | {"pytorch_model.bin": b"pickle"}
    liked = {"reward": "model", "id": "someone/judge", "revision": SHA}
    project = fetched.copied(tmp_path / "g2d")
    project.configure(config | {"rewards": {"liked": liked}, "open_ended": SECTION | {"reward": "liked"}})
    replies = "results/mine/base/open-ended/rollouts.parquet"
    output = run(project, hub, replies)
    assert not output.startswith("failed"), output
    assert pd.read_parquet(project.root / replies)["reward_status"].eq("judged").all()
    requested = {request.rpartition("/")[2] for request in hub.requests if "/judge/resolve/" in request}
    assert requested == files.keys()
