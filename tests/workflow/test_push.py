"""`g2d push` of a finished grid with the Hub's own client; a local server plays the Hub and keeps what it is sent."""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from g2d.cli import main
from g2d.jobs.files import read_json, write_json
from g2d.report.push import named
from tests.workflow.conftest import Project

TOKENS = {"hf_writes": 200, "hf_reads": 403}  # status of what writes


class Hub(ThreadingHTTPServer):
    """Repositories by type and name: whether they are private, their files, and their last commit."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server_port}"
        self.repositories: dict[str, dict[str, Any]] = {}
        self.requests: list[str] = []

    @property
    def private(self) -> list[bool]:
        return [repository["private"] for repository in self.repositories.values()]

    def files(self, place: str) -> dict[str, bytes]:
        return dict(self.repositories[place]["files"])


class Handler(BaseHTTPRequestHandler):
    server: Hub

    def answer(self) -> None:
        path = self.path.partition("?")[0].removeprefix("/api/")
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.requests.append(f"{self.command} {path}")
        status = TOKENS.get(str(self.headers.get("Authorization")).removeprefix("Bearer "), 401)
        if status == 403 and self.command == "GET":
            status = 200
        answer = self._answer_to(path, body) if status == 200 else {"error": "this token may not"}
        if answer is None:
            status, answer = 404, {"error": "no such repository"}
        content = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PUT = answer  # noqa: N815 - the names that http.server looks for

    def _answer_to(self, path: str, body: bytes) -> dict[str, Any] | None:
        if path == "whoami-v2":
            return {"name": "me", "type": "user"}
        if path == "validate-yaml":
            return {"errors": [], "warnings": []}
        if path == "repos/create":
            wanted = json.loads(body)
            place = f"{wanted.get('type', 'model')}s/{wanted.get('organization', 'me')}/{wanted['name']}"
            private = wanted.get("private", wanted.get("visibility") == "private")
            self.server.repositories.setdefault(place, {"private": private, "files": {}, "sha": "0" * 40})
            return {"url": f"{self.server.address}/{place}", "name": wanted["name"]}
        place, (action, *_) = "/".join(path.split("/")[:3]), [*path.split("/")[3:], ""]
        repository = self.server.repositories.get(place)
        if repository is None:
            return None
        if action == "preupload":
            paths = [file["path"] for file in json.loads(body)["files"]]
            return {"files": [_preupload(path, repository["files"].get(path)) for path in paths]}
        if action == "commit":
            sent = [json.loads(line) for line in body.splitlines()]
            files = {line["value"]["path"]: line["value"]["content"] for line in sent if line["key"] == "file"}
            assert len(files) == len(sent) - 1  # the other line is the message
            repository["files"] |= {name: base64.b64decode(content) for name, content in files.items()}
            repository["sha"] = hashlib.sha1(body).hexdigest()
            page = f"{self.server.address}/{place.removeprefix('models/')}/commit/{repository['sha']}"
            return {"commitUrl": page, "commitOid": repository["sha"]}
        if action == "settings":
            repository["private"] = json.loads(body)["visibility"] == "private"
        about = {"id": place.partition("/")[2], "siblings": []}
        return about | {"sha": repository["sha"], "private": repository["private"]}

    def log_message(self, *arguments: object) -> None:
        pass


def _preupload(path: str, held: bytes | None) -> dict[str, Any]:
    oid = None if held is None else hashlib.sha1(b"blob %d\0" % len(held) + held).hexdigest()  # git's digest of a file
    return {"path": path, "uploadMode": "regular", "shouldIgnore": False, "oid": oid}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    from huggingface_hub import constants

    server = Hub()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setattr(constants, "ENDPOINT", server.address)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
    monkeypatch.setenv("HF_TOKEN", "hf_writes")
    yield server
    server.shutdown()


def push(project: Project, *arguments: str) -> int:
    return main(["push", str(project.results), "--to", "lab/study", *arguments])


DPO, GRPO, BASE = "models/lab/study-micro-seed0-dpo-g2-k4", "models/lab/study-micro-seed0-grpo-g2-k4", "micro-base"


def test_adapters_pairs_and_rollouts_are_pushed_with_cards_that_name_each_other(
    micro_grid: Project, hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from huggingface_hub import ModelCard

    assert push(micro_grid) == 0
    assert set(hub.private) == {True}
    assert list(hub.repositories)[:2] == ["datasets/lab/study", f"models/lab/study-{BASE}"]
    assert len(hub.repositories) == 10  # eight of them are policies

    seed0 = micro_grid.results / "micro/seed0"
    files = hub.files(DPO)
    assert files["adapter_model.safetensors"] == (seed0 / "dpo/g2/k4/adapter/adapter_model.safetensors").read_bytes()
    config = json.loads(files["adapter_config.json"])
    assert (config["base_model_name_or_path"], config["revision"]) == (f"lab/study-{BASE}", None)
    (tmp_path / "README.md").write_bytes(files["README.md"])
    card = ModelCard.load(tmp_path / "README.md")
    assert card.data.base_model == f"lab/study-{BASE}"
    assert card.data.datasets == ["lab/study"]
    answers = pd.read_parquet(seed0 / "dpo/g2/k4/eval/arithmetic.parquet")
    [found] = [result for result in card.data.eval_results or [] if result.dataset_name == "arithmetic"]
    assert (found.metric_type, found.metric_value) == ("accuracy", round((answers.verdict == "correct").mean(), 4))
    assert f'from_pretrained(base, "{DPO.removeprefix("models/")}")' in card.text
    assert "path/to" not in card.text

    assert ModelCard(hub.files(GRPO)["README.md"].decode()).data.datasets is None  # it was trained on no harvest
    model = micro_grid.results / "micro/base/model"
    held = hub.files(f"models/lab/study-{BASE}")
    assert held.keys() == {"README.md", *(file.name for file in model.iterdir())}
    assert held["model.safetensors"] == (model / "model.safetensors").read_bytes()
    for repository in hub.repositories.values():
        texts = [body for name, body in repository["files"].items() if name.endswith((".md", ".json", ".jsonl"))]
        assert not any(str(place).encode() in body for body in texts for place in (micro_grid.root, Path.home()))

    before = len(hub.requests)
    capsys.readouterr()
    assert push(micro_grid) == 0
    assert not [request for request in hub.requests[before:] if "/commit/" in request]
    printed = capsys.readouterr()
    assert printed.err == ""
    lines = printed.out.splitlines()
    assert len(lines) == 10 and all(line.endswith("nothing new") for line in lines)


def test_the_data_set_is_read_by_the_names_on_its_card(micro_grid: Project, hub: Hub, tmp_path: Path) -> None:
    from datasets import load_dataset

    assert push(micro_grid, "--only", "none") == 0
    files = hub.files("datasets/lab/study")
    for name, body in files.items():
        (tmp_path / "study" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "study" / name).write_bytes(body)
    harvest = "micro/seed0/harvest/g2/k4"
    options = {"cache_dir": str(tmp_path / "cache"), "split": "train"}
    pairs = load_dataset(str(tmp_path / "study"), harvest.replace("/", "-"), **options)
    assert pairs["problem_id"] == list(
        pd.read_json(micro_grid.results / harvest / "pairs.jsonl", lines=True).problem_id
    )
    rollouts = f"{harvest}/rollouts.parquet"
    assert files[rollouts] == (micro_grid.results / rollouts).read_bytes()
    assert (
        f"hf://datasets/lab/study/{harvest.replace('k4', 'k0').replace('g2', 'g0')}/rollouts"
        in files["README.md"].decode()
    )


def test_a_dry_run_lists_all_files_without_requests(
    micro_grid: Project, hub: Hub, capsys: pytest.CaptureFixture[str]
) -> None:
    assert push(micro_grid, "--dry-run", "--only", "*/dpo/g2/k4") == 0
    output = capsys.readouterr().out
    assert hub.requests == []
    titles = [line for line in output.splitlines() if not line.startswith(" ")]
    assert titles[:-1] == [
        "dataset lab/study (private)",
        f"model lab/study-{BASE} (private)",
        f"{DPO.replace('models/', 'model ')} (private)",
    ]
    weights = micro_grid.results / "micro/seed0/dpo/g2/k4/adapter/adapter_model.safetensors"
    assert f"{weights.stat().st_size / 1e3:,.1f} kB  {weights.name}" in output


def test_repositories_are_private_without_the_option(
    micro_grid: Project, hub: Hub, capsys: pytest.CaptureFixture[str]
) -> None:
    assert push(micro_grid, "--only", "none", "--public") == 0
    assert set(hub.private) == {False}
    assert push(micro_grid, "--only", "none") == 2
    assert "lab/study is public: say --public" in capsys.readouterr().err
    for repository in hub.repositories.values():
        repository["private"] = True
    assert push(micro_grid, "--only", "none", "--public") == 0
    assert set(hub.private) == {False}


@pytest.mark.parametrize(
    ("token", "message"),
    [
        (None, "no token of the Hub here"),
        ("hf_unknown", "the Hub refuses (Invalid user token."),
        ("hf_reads", "the Hub refuses (this token may not)"),
        ("no network", "cannot reach the Hub ("),
    ],
)
def test_a_refusal_of_the_hub_is_one_line(
    micro_grid: Project,
    hub: Hub,
    token: str | None,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from huggingface_hub import constants

    if token == "no network":
        monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")  # where nobody listens
    else:
        monkeypatch.delenv("HF_TOKEN") if token is None else monkeypatch.setenv("HF_TOKEN", token)
    assert push(micro_grid, "--only", "none") == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"g2d push: {message}")
    assert ("`hf auth login`, with a token that may write there" in line) == (token != "no network")
    assert hub.repositories == {}


def test_changed_results_are_not_pushed(own_micro_grid: Project, hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    seed0 = own_micro_grid.results / "micro/seed0"
    with open(seed0 / "dpo/g2/k4/adapter/adapter_model.safetensors", "ab") as file:
        file.write(b"more")
    (seed0 / "dpo/g2/k2/eval/arithmetic.parquet").unlink()
    (seed0 / "grpo/g2/k4/adapter/README.md").unlink()
    shutil.rmtree(seed0 / "grpo/g4")
    (seed0 / "harvest/g2/k4/pairs.jsonl").write_text("")
    assert push(own_micro_grid) == 0
    left = {line.split(": ")[1] for line in capsys.readouterr().err.splitlines()}
    policies = {"micro/seed0/dpo/g2/k4", "micro/seed0/dpo/g2/k2", "micro/seed0/grpo/g2/k4", "micro/seed0/grpo/g4/k4"}
    assert left == policies | {"micro/seed0/harvest/g2/k4"}
    assert not {f"models/lab/study-{folder.replace('/', '-')}" for folder in left} & hub.repositories.keys()
    assert "micro/seed0/harvest/g2/k4/pairs.jsonl" not in hub.files("datasets/lab/study")

    (own_micro_grid.results / "tables/main.csv").unlink()  # source of the cards of policies
    assert push(own_micro_grid, "--dry-run") == 0
    assert [line for line in capsys.readouterr().out.splitlines() if line.startswith("model ")] == [
        f"model lab/study-{BASE} (private)"
    ]
    shutil.rmtree(own_micro_grid.results / "micro")
    assert push(own_micro_grid) == 2
    assert "nothing to push that is finished" in capsys.readouterr().err


def test_no_text_names_a_folder_of_this_machine(own_micro_grid: Project, capsys: pytest.CaptureFixture[str]) -> None:
    file = own_micro_grid.results / "config.yaml"
    noted = yaml.safe_load(file.read_text()) | {"demonstration": f"The log is in {Path.home()}/logs."}
    file.write_text(yaml.safe_dump(noted))
    assert push(own_micro_grid, "--dry-run") == 2
    assert f"README.md of lab/study would show {Path.home()}" in capsys.readouterr().err


def test_m0_and_problems_have_names_on_the_hub_or_m0_is_given_one(
    own_micro_grid: Project, hub: Hub, capsys: pytest.CaptureFixture[str]
) -> None:
    from huggingface_hub import ModelCard

    def configured(source: dict[str, Any], revision: str | None) -> None:
        file, record = own_micro_grid.results / "config.yaml", own_micro_grid.results / "micro/base/policy.json"
        config = yaml.safe_load(file.read_text())
        problems = {"source": "hub", "id": "their/problems", "revision": sha, "split": "test"}
        config |= {"models": {"micro": source}, "pool": problems, "benchmarks": {"arithmetic": problems}}
        file.write_text(yaml.safe_dump(config))
        write_json(record, read_json(record) | {"settings": source, "revision": revision})

    sha = "a" * 40
    configured({"source": "hub", "id": "their/model", "revision": sha}, sha)
    assert push(own_micro_grid) == 0
    card = ModelCard(hub.files(DPO)["README.md"].decode())
    assert (card.data.base_model, card.data.datasets) == ("their/model", ["lab/study", "their/problems"])
    [result] = card.data.eval_results or []
    assert (result.dataset_type, result.dataset_split, result.dataset_revision) == ("their/problems", "test", sha)
    assert f"models/lab/study-{BASE}" not in hub.repositories
    config = json.loads(hub.files(DPO)["adapter_config.json"])
    assert (config["base_model_name_or_path"], config["revision"]) == ("their/model", sha)

    configured({"source": "local", "path": "/home/me/model"}, None)
    assert push(own_micro_grid) == 2
    assert "models.micro is a folder of this machine" in capsys.readouterr().err
    assert push(own_micro_grid, "--base", "micro=my/copy") == 0
    assert json.loads(hub.files(DPO)["adapter_config.json"])["base_model_name_or_path"] == "my/copy"
    assert b"base_model: my/copy\n" in hub.files(DPO)["README.md"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--to", "study"], "--to study: not a repository's name, ORG/NAME"),
        (["--to", "lab/stu dy"], "Repo id must use alphanumeric chars"),
        (["--base", "mikro=a/b"], "--base mikro: no such model here; there are micro"),
    ],
)
def test_mistakes_in_names_are_reported_before_any_request(
    micro_grid: Project, hub: Hub, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert push(micro_grid, *arguments) == 2
    assert message in capsys.readouterr().err
    assert hub.requests == []


@pytest.mark.parametrize("base", ["micro=<script>", "micro=name", "micro=a/b/c", "micro=../b", "micro=", "a/b"])
def test_a_base_that_is_no_repository_is_refused(base: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"is not MODEL=ORG/REPO"):
        named(base)
    assert named("micro=org/model-1.5") == ("micro", "org/model-1.5")
