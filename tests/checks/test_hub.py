"""Hub repositories are looked up before any job starts; a local server plays the Hub and answers as it does."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from g2d.checks import requirements
from g2d.checks.load import load
from g2d.rewards.model import RewardModel
from g2d.rewards.registry import reward_params
from g2d.settings import ConfigError
from tests.configs import MINIMAL
from tests.rewards.models import reward_model

SHA = "a" * 40
ANSWERS = {  # status and error code by repository, as documented for the Hub's API
    "known/model": (200, None),
    "gated/model": (403, "GatedRepo"),
    "old/model": (404, "RevisionNotFound"),
    "no/model": (401, "RepoNotFound"),
    "broken/model": (500, None),
}


class Hub(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        repository = "/".join(self.path.split("/")[3:5])
        status, code = ANSWERS[repository]
        self.send_response(status)
        if code:
            self.send_header("X-Error-Code", code)
        body = json.dumps({"id": repository, "sha": SHA, "siblings": [], "error": code}).encode()
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch, tmp_path: pytest.TempPathFactory) -> Iterator[str]:
    from huggingface_hub import constants

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr(constants, "ENDPOINT", address)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    yield address
    server.shutdown()


@pytest.mark.parametrize(
    ("repository", "problem"),
    [
        ("known/model", None),
        ("gated/model", "gated/model is gated: log in at http"),
        ("old/model", f"old/model has no revision {SHA}"),
        ("no/model", "the Hub has no model no/model that you may read"),
        ("broken/model", "cannot reach the Hub for broken/model"),
    ],
)
def test_an_error_of_a_repository_is_explained(endpoint: str, repository: str, problem: str | None) -> None:
    message = requirements.lookup("model", repository, SHA)
    assert message is None if problem is None else message is not None and message.startswith(problem)


def test_every_bad_repository_is_named_with_its_key(endpoint: str) -> None:
    known = {"id": "known/model", "revision": SHA}
    gated = {"id": "gated/model", "revision": SHA}
    absent = {"id": "no/model", "revision": SHA}
    named = {
        "models": {"good": {"source": "hub"} | known, "llama": {"source": "hub"} | gated},
        "rewards": {"liked": {"reward": "model"} | gated},
        "pool": {"source": "hub"} | absent,
    }
    with pytest.raises(ConfigError) as error:
        requirements.require_repositories(load(MINIMAL | named))
    lines = str(error.value).splitlines()
    assert [line.split(":")[0] for line in lines] == ["models.llama", "pool", "rewards.liked"]
    requirements.require_repositories(load(MINIMAL | named), due={"models.good"})
    with pytest.raises(ConfigError, match=r"^models\.llama: gated/model"):
        requirements.require_repositories(load(MINIMAL | named), due={"models.good", "models.llama"})


def test_offline_without_the_files_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert "HF_HUB_OFFLINE is set: download it first" in str(requirements.lookup("dataset", "openai/gsm8k", SHA))


def test_a_machine_without_a_network_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")  # where nobody listens
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    assert "cannot reach the Hub for known/model (" in str(requirements.lookup("model", "known/model", SHA))


def test_only_reward_models_that_jobs_judge_by_are_fetched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    entries = {name: {"reward": "model", "id": f"some/{name}", "revision": SHA} for name in ("liked", "lost", "unused")}
    config = load(MINIMAL | {"rewards": entries})
    truth = {"reward": "math_verify", "version": 1}
    by_kind = {"verifiable": truth, "open_ended": reward_params(config.rewards["liked"])}
    fetched = []

    def fetch(settings: RewardModel) -> str:
        fetched.append(settings.id)
        if settings.id == "some/lost":
            raise OSError("no route")
        return str(tmp_path)

    monkeypatch.setattr(requirements, "folder_of", fetch)
    requirements.fetch_reward_models(config, [])
    assert fetched == []
    with pytest.raises(ConfigError, match=r"rewards.liked: some/liked at aaaaaaaa: .*config.json cannot be read"):
        requirements.fetch_reward_models(config, [by_kind, truth])
    assert fetched == ["some/liked"]
    with pytest.raises(ConfigError, match=r"rewards.lost: .* cannot be fetched .no route.: connect to the Hub"):
        requirements.fetch_reward_models(config, [reward_params(config.rewards["lost"])])
    reward_model(tmp_path)
    requirements.fetch_reward_models(config, [by_kind])
