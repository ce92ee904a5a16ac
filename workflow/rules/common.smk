# The validated configuration, the table of its jobs, and wildcard constraints.

import os
import re
import sys
from importlib.util import find_spec
from inspect import signature
from pathlib import Path

from snakemake.exceptions import WorkflowError
from snakemake.sourcecache import LocalSourceFile

HERE = workflow.current_basedir
ROOT = Path(HERE.path).parents[1] if isinstance(HERE, LocalSourceFile) else None  # checkout
INSTALL = "install the package into this environment first (pip install -e .)"
if ROOT and find_spec("g2d") is None:
    sys.path.append(str(ROOT / "src"))  # for `snakemake --lint`, which the workflow catalogue runs without the package

try:
    from g2d.experiment import grid
    from g2d.experiment.arms import any_arms
    from g2d.experiment.config import load
    from g2d.experiment.config_file import read_files, require_whole
    from g2d.experiment.requirements import (
        fetch_reward_models,
        require_files,
        require_installed,
        require_repositories,
        require_windows,
    )
    from g2d.experiment.stages import VERSIONS
    from g2d.jobs import recover
    from g2d.jobs.digests import recorded_files
    from g2d.jobs.orphans import name_of
    from g2d.jobs.stage import RULE_NAMES, own_name
    from g2d.jobs.files import to_trash
    from g2d.policies import embedded
    from g2d.plain import plain, say
    from g2d.policies.settings import CONVERTED, model_files
    from g2d.problems.settings import HELD_OUT, OPEN_ENDED, problem_files
    from g2d.regimes.run.tracking import sync_command
    from g2d.regimes.run.training import AUTO
    from g2d.settings import ConfigError
    from g2d.graph import catalogue
    from g2d.graph.build import build
    from g2d.graph.job import flat, key_of
    from g2d.tables.captions import captions
except ModuleNotFoundError as error:
    raise WorkflowError(f"{error}: {INSTALL}")

CONFIG_FILES = workflow.configfiles
if workflow.config_settings.replace_workflow_config and workflow.config_settings.configfiles:
    CONFIG_FILES = workflow.config_settings.configfiles

if provider := workflow.storage_settings.default_storage_provider:
    raise WorkflowError(
        f"--default-storage-provider {provider}: results cannot be in a storage: drop it, and name a folder of a shared "
        "file system with --directory"
    )
RESULTS = Path("results")

try:
    of_module = "add --replace-workflow-config to use only the first"
    SOURCES = read_files(CONFIG_FILES, "name only one" if workflow.modifier.is_main_snakefile() else of_module)
    require_whole(config, CONFIG_FILES)
    given_here = workflow.config_settings.config
    CONFIG = load(config, "--config", SOURCES | ({"--config": given_here} if given_here else {}))
    require_files(CONFIG)
    require_windows(CONFIG)
except ConfigError as error:
    raise WorkflowError(plain(str(error), lines=True))

# Lets jobs in a conda environment or container import the package. TRL reads its files in the locale's encoding.
if ROOT:
    before = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part and part != str(ROOT / "src")]
    os.environ.update(PYTHONPATH=os.pathsep.join([str(ROOT / "src"), *before]))
elif workflow.deployment_settings.deployment_method:
    raise WorkflowError("--sdm: its jobs find g2d in a checkout of it alone: name that as the snakefile of the module")
# In a module, g2d's rules may be renamed but its paths may not.
renamed = workflow.modifier.modify_rulename
os.environ.update(PYTHONUTF8="1")
READ_FIRST = "*" in renamed("*")  # not while `use rule train_dpo ... with` reads this file again
if READ_FIRST:
    os.environ[RULE_NAMES] = renamed("*")
if workflow.modifier.path_modifier.replace_prefix("results/x") != "results/x":
    raise WorkflowError(
        "module: prefix and replace_prefix are not for g2d, whose tools look for results/: use --directory"
    )
# Jobs exit when this Snakemake exits, and share processes within its run.
os.environ.update(G2D_RUN=name_of(os.getpid()))

config.update(CONFIG.model_dump(mode="json"))  # captions and jobs need the defaults too
config["share_imports"] &= workflow.is_main_process  # a cluster job has its own Snakemake

try:
    JOBS = build(CONFIG, after=True)
    if workflow.is_main_process:
        JOBS.behind("all")  # a job makes whatever another one needs
except (OSError, ValueError, LookupError) as error:
    raise WorkflowError(plain(error.args[0] if isinstance(error, LookupError) else str(error), lines=True))


def find_job(rule, wildcards):
    """Return the job of a rule with these wildcards."""
    try:
        return JOBS[key_of(rule, wildcards)]
    except KeyError:
        raise WorkflowError(f"this configuration has no job {rule} with {dict(wildcards.items())}")
    except (OSError, ValueError) as error:  # of a finished result
        raise WorkflowError(plain(str(error), lines=True))


def inspected(function):
    """Store the signature of a rule's function, which Snakemake would inspect three times per job."""
    function.__signature__ = signature(function)
    return function


def planned(rule, name):
    """Input: files of a job under this name ("": under none)."""
    return inspected(lambda w: find_job(rule, w).inputs[name] if name else find_job(rule, w).inputs.get("", []))


def param(rule, name):
    """Param: a job is stale if it changes."""
    return inspected(lambda w: find_job(rule, w).params[name])


@inspected
def gpus(wildcards, rulename):
    return find_job(own_name(rulename), wildcards).devices


def given(files, log):
    """External inputs: time stamps count only if the job with this log recorded no digests."""
    try:
        recorded = recorded_files(log, files)
    except (OSError, ValueError) as error:
        raise WorkflowError(plain(str(error), lines=True))
    return [ancient(file) if file in recorded else file for file in files]


def names(values):
    return "|".join(map(re.escape, values)) or "(?!)"


def models_from(*sources):
    return names(name for name, model in CONFIG.models.items() if model.source in sources)


def variant_pattern(names):
    """Wildcard constraint: folder of a warm-up, empty for the main one."""
    return f"(?:{'|'.join(f'{re.escape(name)}/' for name in sorted(names))})?"


ARMS = any_arms(CONFIG).values()
ABLATED_WARMUPS = [arm.variant for arm in ARMS if arm.role == "ablation" and arm.source is None]


def folders(regime):
    """Wildcard constraint: folders of a regime's policies."""
    return names({arm.name.rpartition("/")[2]: arm for arm in ARMS if arm.regime == regime})


wildcard_constraints:
    model=r"[^/]+",
    policy=r"[^/]+/base|[^/]+/seed\d+/(?:[^/]+/)?[^/]+/g\d+/k\d+",
    variant=variant_pattern(grid.variants(CONFIG)),
    regime=folders("dpo"),
    benchmark=r"[^/]+",
    seed=r"\d+",
    g=r"\d+",
    k=r"\d+",
    temperature=r"[\d.]+",
