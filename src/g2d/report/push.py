"""`g2d push`: upload policies, pairs, rollouts and cards of a results folder to the Hugging Face Hub.

Each policy is a model repository (an adapter, or all weights with M0's tokenizer); all harvests are one data set. Only
unchanged outputs of finished jobs are uploaded, with cards, M0's name for the Hub, and the record of `g2d verify-run`.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from g2d import __version__
from g2d.experiment import grid
from g2d.experiment.keys import HarvestKey, PolicyKey
from g2d.jobs.digests import MARK, VERIFIED, as_recorded, digests_in
from g2d.jobs.files import read_json, read_text
from g2d.plain import first_line, say
from g2d.policies.policy import Policy, base_files, read_policy
from g2d.policies.settings import ADAPTER_FILES
from g2d.problems.settings import HubProblems, ProblemSource
from g2d.report.cards import base_card, dataset_card, model_card, results_of
from g2d.tables.accuracy import ABLATION_COLUMNS
from g2d.tables.frames import read_table
from g2d.tables.results import Results

if TYPE_CHECKING:
    from huggingface_hub import HfApi

CARD = "README.md"
HARVESTED = ("pairs.jsonl", "rollouts.parquet")
TABLES = ("tables/main.csv", "tables/ablations.csv")
LOGIN = "`hf auth login`, with a token that may write there"
AGAIN = "the same command goes on with what is missing"


@dataclass(frozen=True)
class Repository:
    id: str
    kind: str  # model | dataset
    files: Mapping[str, Path | str]


def register(subparsers: Any) -> None:
    parser = subparsers.add_parser("push", help="upload policies, pairs, rollouts and cards", description=__doc__)
    parser.add_argument("results", nargs="?", type=Path, default=Path("results"), help="the folder (default: results)")
    parser.add_argument(
        "--to", required=True, metavar="ORG/NAME", help="data set repository; those of models: NAME-..."
    )
    parser.add_argument(
        "--only", default="*", metavar="PATTERN", help="policies alone whose folders match, as */seed0/dpo/*"
    )
    parser.add_argument(
        "--base",
        action="append",
        default=[],
        type=named,
        metavar="MODEL=ORG/REPO",
        help="what a model with `source: local` is called on the Hub",
    )
    parser.add_argument("--public", action="store_true", help="for everybody to see (default: private)")
    parser.add_argument("--dry-run", action="store_true", help="list repositories, files and sizes; needs no network")
    parser.set_defaults(run=run)


def named(text: str) -> tuple[str, str]:
    model, equals, repository = text.partition("=")
    if not (model and equals and re.fullmatch(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", repository, re.ASCII)):
        raise argparse.ArgumentTypeError(f"{text!r} is not MODEL=ORG/REPO")
    return model, repository


def run(arguments: argparse.Namespace) -> int:
    push = Push(arguments.results, arguments.to, dict(arguments.base), arguments.only)
    repositories = list(push.repositories())
    for name, file in push.left_out.items():
        say(f"left out: {name}: {file} is not as a finished job has left it", file=sys.stderr)
    if not repositories:
        raise ValueError(f"{arguments.results}: nothing to push that is finished; `g2d status` says what is not")
    if arguments.dry_run:
        _list(repositories, "public" if arguments.public else "private")
    else:
        upload(repositories, public=arguments.public)
    return 0


def _list(repositories: list[Repository], visibility: str) -> None:
    sizes = []
    for one in repositories:
        say(f"{one.kind} {one.id} ({visibility})")
        for name, held in one.files.items():
            sizes.append(held.stat().st_size if isinstance(held, Path) else len(held.encode()))
            say(f"  {sizes[-1] / 1e3:12,.1f} kB  {name}")
    say(f"{len(repositories)} repositories, {len(sizes)} files, {sum(sizes) / 1e6:,.1f} MB")


class Push:
    """Repositories of a results folder.

    Args:
        to: the data set repository; model repositories add the policy's name.
        bases: Hub names of M0 by model, if the configuration has none.
        only: a pattern for folders of policies. The data set is always whole.
    """

    def __init__(self, folder: Path, to: str, bases: Mapping[str, str], only: str = "*") -> None:
        self.folder, self.to, self.given, self.only = folder, to, bases, only
        self.results = Results(folder)
        self.config = self.results.config
        self.digests = digests_in(folder)
        self.left_out: dict[str, str] = {}  # folder: its first file that changed since its job
        if to.count("/") != 1:
            raise ValueError(f"--to {to}: not a repository's name, ORG/NAME")
        if unknown := sorted(bases.keys() - self.config.models.keys()):
            raise ValueError(f"--base {unknown[0]}: no such model here; there are {', '.join(self.config.models)}")

    def repositories(self) -> Iterator[Repository]:
        from huggingface_hub.utils import validate_repo_id

        trained = [key for key in grid.policies(self.config) if key.role != "base"]
        policies = [key for key in trained if fnmatchcase(key.folder, self.only) and self._is_whole(key)]
        used = {key.model for key in self.harvests} | {key.model for key in policies}
        contents = [self._dataset()] if self.harvests else []
        contents += [self._base(model) for model in self.config.models if model in used and self._is_made(model)]
        contents += [self._policy(key) for key in policies]
        for one in contents:
            validate_repo_id(one.id)
            self._require_no_place(one)
            yield one

    @cached_property
    def harvests(self) -> list[HarvestKey]:
        return [key for key in grid.harvests(self.config) if self._is_whole(key)]

    def _is_whole(self, key: PolicyKey | HarvestKey) -> bool:
        """Return whether all files that are uploaded, or described in the card, are as their jobs left them."""
        if isinstance(key, HarvestKey):
            files = [f"{key.folder}/{name}" for name in (*HARVESTED, "informativeness.json")]
        else:
            names = ["policy.json", *self.config.lora.files, f"{self.config.lora.folder}/{CARD}"]
            names += [f"eval/{benchmark}.parquet" for benchmark in self.config.benchmarks]
            files = [*(f"{key.folder}/{name}" for name in names), *TABLES]
        wrong = [file for file in files if not as_recorded(self.folder / file, self.digests)]
        if not wrong and isinstance(key, PolicyKey):  # the card is made after the tables that it quotes
            card = f"{key.folder}/{self.config.lora.folder}/{CARD}"
            wrong = [] if str(self.results.records[key].weights_sha256) in read_text(self.folder / card) else [card]
        if wrong:
            self.left_out[key.folder] = wrong[0]
        return not wrong

    def _name(self, folder: str) -> str:
        return f"{self.to}-{folder.replace('/', '-')}"

    # ------------------------------------------------------------------------------------------------------- bases

    def _is_made(self, model: str) -> bool:
        return model not in self.given and self.config.models[model].source in ("embedded", "scratch")

    def _record_of_m0(self, model: str) -> Policy:
        return read_policy(self.folder / model / "base/policy.json")

    def _m0(self, model: str) -> Policy:
        record = self._record_of_m0(model)
        name = self._name(record.policy_id) if self._is_made(model) else self.given.get(model)
        return replace(record, settings={"id": name}, revision=None) if name else record

    def _base(self, model: str) -> Repository:
        record, folder = self._record_of_m0(model), self.folder / model / "base/model"
        if not as_recorded(folder, self.digests):
            raise ValueError(f"{folder}: not as its job has left it: the same Snakemake command makes it again")
        files: dict[str, Path | str] = {CARD: base_card(record, self.config.demonstration)}
        files |= {file.name: file for file in sorted(folder.iterdir()) if file.name != MARK}
        return Repository(self._name(record.policy_id), "model", files)

    # ---------------------------------------------------------------------------------------------- policies, harvests

    def _policy(self, key: PolicyKey) -> Repository:
        record, base, name = self.results.records[key], self._m0(key.model), self._name(key.folder)
        if "id" not in base.settings:
            raise ValueError(
                f"models.{key.model} is a folder of this machine, so nobody else could load its policies: push it "
                f"(`hf upload`) or say what it is a copy of, with --base {key.model}=ORG/REPO"
            )
        shown = self.results.finished[key]
        rows, note = results_of(self._tables, shown), self.config.demonstration
        card = model_card(shown, record, base, rows, note, place=name, metadata=self._metadata(key, name))
        m0 = self.folder / key.model / "base/model" if self._is_made(key.model) else Path(base.base)
        weights, config = (self.folder / key.folder / file for file in self.config.lora.files)
        return Repository(name, "model", {CARD: card, **loadable(weights, config, base, m0)})

    def _metadata(self, key: PolicyKey, name: str) -> dict[str, Any]:
        from huggingface_hub import EvalResult, ModelCardData

        pool, shown = self.config.pool, self.results.finished[key]
        datasets = [] if key.arm.phase == "online" or grid.harvest_of(key) not in self.harvests else [self.to]
        datasets += [pool.id] if isinstance(pool, HubProblems) else []
        evaluated = [
            EvalResult(
                task_type="text-generation",
                dataset_name=benchmark,
                metric_type="accuracy",
                metric_name="Accuracy by Math-Verify",
                metric_value=round(float((self.results.answers[shown, benchmark]["verdict"] == "correct").mean()), 4),
                **_on_hub(source) or {"dataset_type": benchmark},
            )
            for benchmark, source in self.config.benchmarks.items()
        ]
        data = ModelCardData(datasets=datasets or None, model_name=name.partition("/")[2], eval_results=evaluated)
        return dict(data.to_dict())

    @cached_property
    def _tables(self) -> pd.DataFrame:
        return pd.concat([read_table(self.folder / table, ABLATION_COLUMNS) for table in TABLES])

    def _dataset(self) -> Repository:
        harvests = [(key, self._m0(key.model), self.results.summaries[key]) for key in self.harvests]
        card = dataset_card(harvests, self.to, self.config.demonstration)
        files = [f"{key.folder}/{name}" for key in self.harvests for name in HARVESTED]
        files += [VERIFIED] if (self.folder / VERIFIED).is_file() else []
        return Repository(self.to, "dataset", {CARD: card, **{file: self.folder / file for file in files}})

    def _require_no_place(self, one: Repository) -> None:
        places = [str(place) for place in (Path.home(), self.folder.resolve().parent) if len(place.parts) > 1]
        for name, text in one.files.items():
            if isinstance(text, str) and (found := next((place for place in places if place in text), None)):
                raise ValueError(f"{name} of {one.id} would show {found}: write paths relative to the checkout")


def loadable(weights: Path, config: Path, base: Policy, m0: Path) -> dict[str, Path | str]:
    """Return an adapter whose configuration names M0 as on the Hub, or all weights with the tokenizer."""
    files: dict[str, Path | str] = {weights.name: weights, config.name: config}
    if weights.name == Path(ADAPTER_FILES[0]).name:
        named = {"base_model_name_or_path": base.public_base, "revision": base.revision}
        return files | {config.name: json.dumps(read_json(config) | named, indent=2) + "\n"}
    return {name: m0 / name for name in base_files(m0) if name != "model.safetensors.index.json"} | files


def _on_hub(source: ProblemSource) -> dict[str, Any]:
    if not isinstance(source, HubProblems):
        return {}
    place = {"type": source.id, "config": source.subset, "split": source.split, "revision": source.revision}
    return {f"dataset_{name}": value for name, value in place.items()}


def upload(repositories: list[Repository], *, public: bool) -> None:
    """Create missing repositories and commit new files; a RuntimeError if the Hub refuses or cannot be reached."""
    from httpx import HTTPError
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, LocalTokenNotFoundError, OfflineModeIsEnabled
    from huggingface_hub.utils import logging

    logging.set_verbosity_error()  # it warns of every repository without news
    api = HfApi()
    try:
        api.whoami()
        for one in repositories:
            say(f"{one.kind} {one.id}: {_commit(api, one, public=public)}")
    except LocalTokenNotFoundError:
        raise RuntimeError(f"no token of the Hub here: {LOGIN}") from None
    except HfHubHTTPError as error:
        refused = error.response is not None and error.response.status_code in (401, 403)
        why = error.server_message or first_line(error)
        raise RuntimeError(f"the Hub refuses ({why}): {LOGIN if refused else AGAIN}") from None
    except (HTTPError, OfflineModeIsEnabled) as error:
        raise RuntimeError(f"cannot reach the Hub ({first_line(error)}): {AGAIN}") from None


def _commit(api: HfApi, one: Repository, *, public: bool) -> str:
    """Return the URL of the commit, or "nothing new"; refuse a public repository without --public."""
    from huggingface_hub import CommitOperationAdd

    api.create_repo(one.id, repo_type=one.kind, private=not public, exist_ok=True)
    before = api.repo_info(one.id, repo_type=one.kind)
    if not before.private and not public:
        raise RuntimeError(f"{one.id} is public: say --public, or make it private on the Hub")
    if before.private and public:
        api.update_repo_settings(one.id, repo_type=one.kind, private=False)
    commit = api.create_commit(
        one.id,
        [
            CommitOperationAdd(name, content if isinstance(content, Path) else content.encode())
            for name, content in one.files.items()
        ],
        repo_type=one.kind,
        commit_message=f"g2d {__version__}",
    )
    return "nothing new" if commit.oid == before.sha else str(commit.commit_url)
