# The validated configuration as a grid, wildcard constraints.

import os
import re
import sys
from dataclasses import replace
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path

from snakemake.exceptions import WorkflowError
from snakemake.sourcecache import LocalSourceFile

HERE = workflow.current_basedir
ROOT = Path(HERE.path).parents[1] if isinstance(HERE, LocalSourceFile) else None  # checkout
INSTALL = "install the package into this environment first (pip install -e .)"
if ROOT and find_spec("g2d") is None:
    sys.path.append(str(ROOT / "src"))  # for `snakemake --lint`, which the workflow catalogue runs without the package

try:
    from g2d.checks.load import load
    from g2d.checks.machine import require_gpu
    from g2d.config.file import read_files, require_whole
    from g2d.forecast import limits
    from g2d.forecast.hours import finished_jobs, to_answer, work_of
    from g2d.checks.requirements import (
        fetch_reward_models,
        require_files,
        require_installed,
        require_repositories,
        require_windows,
    )
    from g2d.grid.grid import Grid
    from g2d.grid.runs import harvest_of
    from g2d.grid.runs import M0
    from g2d.grid.versions import EVALUATIONS, OFFLINE_STAGES, ONLINE_STAGES, ORDER, VERSIONS
    from g2d.jobs import recover
    from g2d.jobs.digests import ANSWERS
    from g2d.jobs.orphans import name_of
    from g2d.jobs.snakemake_jobs import PlannedJob, model_of, write_jobs
    from g2d.jobs.stage import RULE_NAMES, error_of, own_name
    from g2d.jobs.files import to_trash
    from g2d.policies import embedded
    from g2d.policies.record import read_policy
    from g2d.plain import counted, plain, say
    from g2d.policies.model_keys import model_files
    from g2d.problems.problem_keys import HELD_OUT, OPEN_ENDED, place_of, problem_files
    from g2d.regimes.catalogue import REGIMES
    from g2d.regimes.common.tracking import sync_command
    from g2d.regimes.grpo.keys import AUTO
    from g2d.rewards.registry import kind_of
    from g2d.settings import ConfigError, together
    from g2d.tables import all_tables
    from g2d.tables.captions import captions
    from g2d.tables.reads import RECORDS, SHOWN_ANSWERS, SHOWN_PAIRS, SHOWN_ROLLOUTS, TRAINED, TRAINING_LOGS
except ModuleNotFoundError as error:
    raise WorkflowError(f"{error}: {INSTALL}")


class Refusal(WorkflowError):
    """An error whose message says it all: Snakemake prints it without the stack of what raised it."""

    __traceback__ = property(lambda error: None, lambda error, stack: None)  # `contextlib` sets it


CONFIG_FILES = workflow.configfiles
if workflow.config_settings.replace_workflow_config and workflow.config_settings.configfiles:
    CONFIG_FILES = workflow.config_settings.configfiles

if provider := workflow.storage_settings.default_storage_provider:
    raise Refusal(
        f"--default-storage-provider {provider}: results cannot be in a storage: drop it, and name a folder of a shared "
        "file system with --directory"
    )
RESULTS = Path("results")

try:
    of_module = "add --replace-workflow-config to use only the first"
    written = read_files(CONFIG_FILES, "name only one" if workflow.modifier.is_main_snakefile() else of_module)
    require_whole(config, CONFIG_FILES)
    if workflow.config_settings.config:
        written["--config"] = workflow.config_settings.config
    CONFIG = load(config, "--config", written)
    GRID = Grid(CONFIG)
    together(partial(require_files, CONFIG), partial(require_windows, GRID))
except ConfigError as error:
    raise Refusal(plain(str(error), lines=True))

# Lets jobs in a conda environment or container import the package. TRL reads its files in the locale's encoding.
if ROOT:
    before = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part and part != str(ROOT / "src")]
    os.environ.update(PYTHONPATH=os.pathsep.join([str(ROOT / "src"), *before]))
elif workflow.deployment_settings.deployment_method:
    raise Refusal("--sdm: jobs find g2d only in a checkout of it: name a checkout as the snakefile of the module")
# In a module, g2d's rules may be renamed but its paths may not.
renamed = workflow.modifier.modify_rulename
os.environ.update(PYTHONUTF8="1")
READ_FIRST = "*" in renamed("*")  # not while `use rule train_dpo ... with` reads this file again
if READ_FIRST:
    os.environ[RULE_NAMES] = renamed("*")
if workflow.modifier.path_modifier.replace_prefix("results/x") != "results/x":
    raise Refusal("module: prefix and replace_prefix are not for g2d, whose tools look for results/: use --directory")
# Jobs exit when this Snakemake exits, and share processes within its run.
os.environ.update(G2D_RUN=name_of(os.getpid()))

config.update(CONFIG.model_dump(mode="json"))  # captions and jobs need the defaults too
config["share_imports"] &= workflow.is_main_process  # a cluster job has its own Snakemake

WEIGHTS, WEIGHTS_CONFIG = CONFIG.lora.files
CARD = f"{CONFIG.lora.folder}/README.md"

# Folders of policies: of GRPO, of a training on a harvest, and of an online entry of `regimes`. A {run} is dpo, an
# ablation or an entry.
OF_GRPO = "results/{model}/seed{seed}/{variant}grpo/g{g}/k{k}"
OF_OFFLINE = "results/{model}/seed{seed}/{variant}{run}/g{g}/k{k}"
OF_ENTRY = "results/{model}/seed{seed}/{run}/g{g}/k{k}"


def base_model_rule(model):
    """Name of the rule that makes or fetches M0."""
    return "embedded_model" if GRID.is_embedded(model) else "pretrained_model"


def base_model_log(model):
    return f"results/logs/{base_model_rule(model)}/{model}.log"


# Wildcard constraints.


def names(values):
    return "|".join(map(re.escape, values)) or "(?!)"


def runs_of(method):
    """Pattern of the names of a regime's runs."""
    if method not in REGIMES:
        raise Refusal(f"train_{method}: src/g2d/regimes/catalogue.py has no regime {method}: add it to ALL there")
    return names(GRID.names_of(method))


def models_from(*sources):
    return names(name for name, model in CONFIG.models.items() if model.source in sources)


def variant_pattern(names):
    """Folder of a warm-up, empty for the main one."""
    return f"(?:{'|'.join(f'{re.escape(name)}/' for name in sorted(names))})?"


wildcard_constraints:
    model=r"[^/]+",
    policy=r"[^/]+/base|[^/]+/seed\d+/(?:[^/]+/)?[^/]+/g\d+/k\d+",
    variant=variant_pattern(GRID.variants),
    benchmark=r"[^/]+",
    seed=r"\d+",
    g=r"\d+",
    k=r"\d+",
    temperature=r"[\d.]+",


# Outputs that Snakemake's own report shows.


def in_report(file, category, title, caption=None):
    """Output that `snakemake --report` shows; a demonstration is named in its menu."""
    category = f"{category} (synthetic demonstration)" if CONFIG.demonstration else category

    def labels(wildcards):
        return {"what": title} | ({"caption": captions(CONFIG, [caption])[caption]["caption"]} if caption else {})

    return report(file, category=category, labels=labels)


def table_file(name):
    """File of a table. Table 1 is in Snakemake's report too."""
    file = f"results/tables/{name}.csv"
    return in_report(file, "Tables", TITLES[name], name) if name == "main" else file
