# What the rules share: the validated configuration, and small functions from wildcards to settings and files.

import functools
import os
import subprocess
import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError
from snakemake.io import is_flagged
from snakemake.logging import logger

try:
    from g2d.experiment import grid, hub
    from g2d.experiment.config import load, require_written_well
    from g2d.experiment.config import read as read_config
    from g2d.experiment.estimate import GpuJob, estimate, measured_rates
    from g2d.experiment.estimate import report as report_hours
    from g2d.experiment.requirements import require_files, require_installed
    from g2d.jobs import recover
    from g2d.jobs.cost import read_cost
    from g2d.jobs.stage import VERSIONS
    from g2d.policies.policy import BASE_FILES, changed_base_files, read_policy
    from g2d.policies.settings import model_files
    from g2d.problems.settings import problem_files
    from g2d.regimes.warmup import AUTO
    from g2d.settings import ConfigError
except ModuleNotFoundError as error:
    raise WorkflowError(f"{error}: install the package into this environment first (pip install -e .)")

try:
    require_written_well(workflow.configfiles)
    CONFIG = load(config, ", ".join(map(str, workflow.configfiles)) or "--config")
    require_files(CONFIG)
except ConfigError as error:
    raise WorkflowError(str(error))

# Jobs in a conda environment or container find the package here. TRL reads its own texts in the encoding of the locale.
os.environ.update(PYTHONPATH=str(Path(workflow.basedir) / "src"), PYTHONUTF8="1")
# Whose jobs may share an engine (engine.keep_alive), and with whom that engine ends: the Snakemake next above them.
os.environ.update(G2D_RUN=str(os.getpid()))

config.update(CONFIG.model_dump(mode="json"))  # captions and jobs see the defaults too
config["share_imports"] &= workflow.is_main_process  # a job of a cluster is the only one of its Snakemake


def variant_pattern(names):
    """A wildcard constraint: the folder of a warm-up, or nothing for the main one."""
    return f"(?:{'|'.join(f'{re.escape(name)}/' for name in sorted(names))})?"


wildcard_constraints:
    model=r"[^/]+",
    policy=r"[^/]+/base|[^/]+/seed\d+/(?:[^/]+/)?[^/]+/g\d+/k\d+",
    variant=variant_pattern(grid.variants(CONFIG)),
    regime="|".join(["dpo", *(re.escape(name) for name in CONFIG.ablations if name not in grid.variants(CONFIG))]),
    benchmark=r"[^/]+",
    seed=r"\d+",
    g=r"\d+",
    k=r"\d+",
    shard=r"\d+",
    shards=r"\d+",
    n=r"\d+",
    temperature=r"[\d.]+",


HARVESTS = grid.harvests(CONFIG)
PROBES = grid.probes(CONFIG)
POLICIES = grid.policies(CONFIG)
AUTO_WARMUPS = grid.auto_warmups(CONFIG)
TABLES = {
    "main": "Table 1: accuracy and cost",
    "comparisons": "Which differences are real: paired tests",
    "decomposition": "Where a gain comes from",
    "budgets": "Accuracy by token budget",
    "harvest": "Table 2: informativeness of the harvest",
    "correlations": "Table 2: correlation with accuracy",
    "ablations": "Table 3: ablations",
    "calibration": "Table 4: difficulty calibration",
    "disputes": "Verifier: disputed answers",
    "cost": "The bill by policy and stage",
    "published": "The paper's Table 1 beside this grid's",
    "audit": "Published numbers recomputed",
    "attempts": "What the grid really cost, failed attempts included",
}
FACTORIAL = {model: files for model in CONFIG.models if (files := grid.factorial_files(CONFIG, model))}
if FACTORIAL:
    TABLES |= {
        "factorial": "Level x temperature: the cells",
        "factorial_effects": "Level x temperature: the effects",
    }
if POLICIES and any("grpo" in ablation.policies for ablation in CONFIG.ablations.values()):
    TABLES["equal_compute"] = "GRPO variants at equal compute"
if AUTO_WARMUPS:
    TABLES["auto"] = "Warm-up that stops by itself: its probes"
if CONFIG.probe.compare:
    TABLES |= {
        "advice": "Advice: which K",
        "advice_levels": "Advice: which levels",
        "advice_hours": "Advice: device-hours",
        "advice_check": "Advice: what the grid showed",
    }
FIGURES = ["accuracy", "informativeness", "gains", "budgets"]


# Small jobs that run where Snakemake runs, which has the network that the first two need. On a cluster, to wait for a
# node would take each of them longer than to do its work.
localrules:
    pretrained_model,
    load_problems,
    check_leakage,
    audit_papers,
    select_training_set,
    make_factorial,
    build_pairs,
    build_several_pairs,
    advise,
    check_advice,
    make_tables,
    render_tables,
    draw_figures,
    write_cards,
    record_provenance,
    write_methods,
    build_report,


SCRATCH_MODELS = [name for name, source in CONFIG.models.items() if source.source == "scratch"]


def names(values):
    """A wildcard constraint that admits these values and nothing else."""
    return "|".join(map(re.escape, values)) or "(?!)"


@functools.cache
def for_model(model):
    """The configuration with a model's own settings merged in."""
    return CONFIG.for_model(model)


def model_of(wildcards):
    """The model a job belongs to: a wildcard of its own, or the first folder of a policy."""
    return getattr(wildcards, "model", None) or wildcards.policy.split("/")[0]


def settings(*sections):
    """Params: the resolved sections of the configuration that a stage depends on, and nothing else."""

    def resolve(wildcards):
        model = model_of(wildcards)
        return {section: getattr(for_model(model), section).params() for section in sections}

    return resolve


def calibration_settings(wildcards):
    """The sections that calibration rollouts depend on, at the temperature of the job."""
    resolved = for_model(wildcards.model)
    own = resolved.calibration.params(without={"levels", "window", "factorial_temperatures"})
    if hasattr(wildcards, "temperature"):
        own["temperature"] = float(wildcards.temperature)
    return {"calibration": own, "prompt": resolved.prompt.params()}


def factorial_files(_):
    """Calibration rollouts at every temperature, of the models that have several."""
    return [file for files in FACTORIAL.values() for file in files.values()]


def engine(wildcards):
    """Param: what generates. How many GPUs and how much memory it takes is read by the script and re-runs nothing."""
    model = model_of(wildcards)
    return for_model(model).engine.identity


def generating_gpus(wildcards, input):
    """Resource: GPUs of a job that generates with a frozen policy; merging shards takes none."""
    chosen = for_model(model_of(wildcards)).engine
    if input.shards:
        return 0
    return chosen.tensor_parallel_size if chosen.name == "vllm" else 1


REFUSED = []  # why input functions failed


def refuse(error):
    """Fail in an input function, and for good once all is planned.

    Where the output is there, Snakemake would take no notice: it leaves the job out, and with it all that it depends on.
    """
    REFUSED.append(str(error))
    raise WorkflowError(str(error))


def refuse_unreadable(_):
    """Stop where a file that the plan depends on cannot be read."""
    if REFUSED:
        raise WorkflowError("\n".join(dict.fromkeys(REFUSED)))


def shards(stage, shard, cost):
    """Input: the shards that a file of rollouts is merged from, or their bills; none where one job draws it whole.

    A finished file keeps the number of shards it was made of, which its bill tells: the rows would be the same.
    """

    def files(wildcards):
        if hasattr(wildcards, "shard"):
            return []
        bill = Path(cost.format(**wildcards))
        count = getattr(for_model(model_of(wildcards)).engine.shards, stage)
        folder = str(Path(shard).parent).format(**wildcards)
        try:
            if bill.exists():
                count = sum(record.job.startswith(f"{folder}/") for record in read_cost(bill).ancestry)
        except (OSError, ValueError) as error:
            refuse(error)
        numbers = range(1, count + 1) if count > 1 else []
        return [shard.format(**wildcards, shard=number, shards=count) for number in numbers]

    return files


def base_files(wildcards):
    """The record of M0, and its weights where a rule makes them."""
    model = model_of(wildcards)
    record = f"results/{model}/base/policy.json"
    return [record, f"results/{model}/base/model/model.safetensors"] if model in SCRATCH_MODELS else [record]


def policy_files(wildcards):
    """The record of the policy in a folder, its weights, and those of the M0 below it."""
    adapter = f"results/{wildcards.policy}/adapter/adapter_model.safetensors"
    own = [] if wildcards.policy.endswith("base") else [f"results/{wildcards.policy}/policy.json", adapter]
    return own + base_files(wildcards)


def variant_of(wildcards):
    """The ablation whose warm-up a job belongs to, "" for the main one, `AUTO` for the one that stops by itself."""
    return wildcards.variant.rstrip("/")


def warmed_up(wildcards):
    """Folder of pi_K: GRPO's at step K, or M0's for K=0."""
    if wildcards.k == "0":
        return f"results/{wildcards.model}/base"
    return f"results/{wildcards.model}/seed{wildcards.seed}/{wildcards.variant}grpo/g{wildcards.g}/k{wildcards.k}"


def warmed_up_files(wildcards):
    """Record and weights of pi_K."""
    folder = warmed_up(wildcards)
    own = [] if wildcards.k == "0" else [f"{folder}/policy.json", f"{folder}/adapter/adapter_model.safetensors"]
    return own + base_files(wildcards)


def warmed_up_cost(wildcards):
    """The bill behind pi_K; M0 is given, so for K=0 it is the calibration's."""
    if wildcards.k == "0":
        return f"results/{wildcards.model}/calibration/cost.json"
    return f"{warmed_up(wildcards)}/cost.json"


def several_pairs_settings(wildcards):
    """What several pairs per prompt depend on: not on `pairs.seed`, and on its younger keys where they change anything."""
    pairs = for_model(wildcards.model).pairs.params(without={"seed"})
    return settings("prompt")(wildcards) | ({"pairs": pairs} if pairs else {})


def grpo_settings(wildcards):
    """The sections that a warm-up to step K depends on."""
    resolved = for_model(wildcards.model)
    return {
        "warmup": resolved.warmup_of(variant_of(wildcards)).trajectory(int(wildcards.k), int(wildcards.g)),
        "lora": resolved.lora.params(),
        "prompt": resolved.prompt.params(),
        "engine": resolved.engine.identity,
    }


def auto_settings(wildcards):
    """The sections that a warm-up which stops by itself depends on; its probes are small harvests."""
    resolved = for_model(wildcards.model)
    return {
        "warmup": resolved.warmup.trajectory(int(wildcards.k), int(wildcards.g)),
        "auto": resolved.warmup.auto.params(),
        "engine": resolved.engine.identity,
        **settings("harvest", "lora", "prompt")(wildcards),
    }


def auto_warmup(wildcards):
    """The record of the warm-up behind a policy where that alone knows its K: it stopped by itself."""
    return [f"{warmed_up(wildcards)}/policy.json"] if variant_of(wildcards) == AUTO else []


def continued_from(wildcards):
    """K of the checkpoint that this K continues, None where it starts from M0.

    A finished K keeps the predecessor it really had. Every point of a chain is the same whichever checkpoint it was
    reached from, so a K that is added between two others must not make the later one stale.
    """
    record = Path(warmed_up(wildcards)) / "policy.json"
    try:
        finished = read_policy(record) if record.exists() else None
    except (OSError, ValueError) as error:
        refuse(error)
    if finished is not None and finished.settings == grpo_settings(wildcards):
        return finished.continued_from
    return grid.chain_predecessor(CONFIG, wildcards.model, int(wildcards.g), int(wildcards.k), variant_of(wildcards))


def previous_checkpoint(wildcards):
    """Folder of the checkpoint that this K continues, if any."""
    k = continued_from(wildcards)
    folder = f"results/{wildcards.model}/seed{wildcards.seed}/{wildcards.variant}grpo/g{wildcards.g}"
    return [] if k is None else [f"{folder}/k{k}/checkpoint"]


def previous_costs(wildcards):
    """Bills of the steps before this K."""
    return [f"{Path(folder).parent}/cost.json" for folder in previous_checkpoint(wildcards)]


def dpo_settings(wildcards):
    """The dpo section, with an ablation's other values."""
    resolved = for_model(wildcards.model)
    ablation = variant_of(wildcards) or wildcards.regime
    return resolved.dpo if ablation in ("dpo", AUTO) else resolved.ablation_dpo(ablation)


def start_files(wildcards):
    """The policy to start from where it is not M0."""
    return warmed_up_files(wildcards)[:2] if dpo_settings(wildcards).start == "warmup" else []


def pairs_file(wildcards):
    """The pairs to train on: one of every pairable prompt, or several."""
    n = dpo_settings(wildcards).pairs_per_prompt
    name = "pairs" if n == 1 else f"pairs-{n}"
    harvest = f"results/{wildcards.model}/seed{wildcards.seed}/{wildcards.variant}harvest"
    return f"{harvest}/g{wildcards.g}/k{wildcards.k}/{name}.jsonl"


def matched_pairs(wildcards):
    """The pairs to whose smallest number an N-matched control is cut."""
    match = dpo_settings(wildcards).match_pairs_to
    if match is None:
        return []
    own = wildcards.variant if variant_of(wildcards) != AUTO else ""  # it is matched to the grid, as the grid's K are
    points = grid.harvest_points(CONFIG, wildcards.model, own.rstrip("/"))
    harvest = f"results/{wildcards.model}/seed{wildcards.seed}/{own}harvest"
    return [f"{harvest}/g{g}/k{k}/pairs.jsonl" for g, k in points if match in (k, "min")]


def with_forced_jobs(workflow, jobs_of_target):
    """Make `-R <target>` force the jobs that the target stands for.

    A target has no wildcards and a job's rule has, so `harvest` cannot name both; Snakemake knows what to force only
    after this file is read, hence the detour.
    """
    prepare = workflow._prepare_dag

    def prepare_with_jobs(*args, **kwargs):
        forced = workflow.dag_settings.forcerun
        workflow.dag_settings.forcerun = frozenset().union(*(jobs_of_target.get(name, {name}) for name in forced))
        return prepare(*args, **kwargs)

    workflow._prepare_dag = prepare_with_jobs


def gpu_job(job):
    """What the estimate knows of a job that holds a GPU, or None for any other."""
    holds_gpu = "gpu" in job.rule.resources and not job.input.get("shards")
    if not holds_gpu or model_of(job.wildcards) in SCRATCH_MODELS:
        return None
    stage, model = job.rule.name.removesuffix("_shard"), model_of(job.wildcards)
    if stage in ("train_grpo", "train_grpo_auto"):  # the second takes as many steps at most
        before = (continued_from(job.wildcards) or 0) if stage == "train_grpo" else 0
        variant = variant_of(job.wildcards) if stage == "train_grpo" else AUTO
        per_step = for_model(model).warmup_of(variant).completions_per_step(int(job.wildcards.g))
        return GpuJob(stage, model, (int(job.wildcards.k) - before) * per_step)
    if stage == "draw_probe":
        n_prompts = for_model(model).training_set.n
        return GpuJob(stage, model, min(CONFIG.probe.prompts, n_prompts) / n_prompts, rate_of="harvest_rollouts")
    return GpuJob(stage, model, 1 / int(job.wildcards.get("shards", 1)))


def when_planned(workflow, *steps):
    """Call every step with the DAG once it is built; `onstart` would be too late, because a dry-run never gets there."""
    build = workflow._build_dag

    def build_and_go_on(*args, **kwargs):
        build(*args, **kwargs)
        for step in steps:
            step(workflow.dag)

    workflow._build_dag = build_and_go_on


def plan_what_is_due(dag):
    """Plan jobs whose files are missing or whose M0 was edited, and what follows from them.

    Snakemake looks for a missing file only where a job that runs needs it. So with the tables there, a deleted harvest
    would stay deleted, and so would the outputs that a failed job has lost. Temporary files have done their duty.
    """
    if not workflow.is_main_process:
        return
    due = False
    for job in dag.jobs:
        if dag.needrun(job):
            continue
        missing = [file for file in job.output if not is_flagged(file, "temp") and not os.path.exists(file)]
        edited = edited_base_files(job) if not missing else []
        dag.reason(job).missing_output.update(missing)
        dag.reason(job).updated_input.update(edited)
        due = due or bool(missing or edited)
    if due:
        workflow.async_run(dag.update_needrun())


def edited_base_files(job):
    """Tokenizer, chat template and configuration of an M0 on this machine that changed since its record was written.

    They are compared with the digests in that record and are no inputs: a finished folder of 0.1.0, whose jobs had
    fewer, would be made again for it. Its records have no digests either; what is newer than them counts as changed.
    """
    if job.rule.name not in ("scratch_model", "pretrained_model"):
        return []
    record = Path(job.output.policy)
    try:
        policy = read_policy(record)
    except (OSError, ValueError) as error:
        raise WorkflowError(str(error))
    if policy.base_files is not None or CONFIG.models[job.wildcards.model].source != "local":
        return changed_base_files(policy)
    return [
        str(file)
        for pattern in BASE_FILES
        for file in Path(policy.base).glob(pattern)
        if str(file) not in job.input and file.stat().st_mtime > record.stat().st_mtime
    ]


def say_what_looks_newer(dag):
    """Name the remedy where time stamps alone make finished jobs run again: Snakemake knows no content of large files."""
    newer = [
        job
        for job in dag.needrun_jobs()
        if any(file.startswith("results/") for file in dag.reason(job).updated_input.intersection(job.input))
        and all(map(os.path.exists, job.output))
    ]
    if newer and workflow.is_main_process:
        logger.warning(
            f"{len(newer)} finished jobs are to run again because a file looks newer than what was made from it. If "
            "this folder was copied without its time stamps: g2d recover --times"
        )


def add_estimate(dag):
    """Add the GPU-hours of the jobs to Snakemake's table of jobs, on a dry-run and before anything is submitted."""
    count = dag.stats

    def stats():
        message, numbers = count()
        jobs = [gpu_job(job) for job in dag.needrun_jobs(exclude_finished=False)]
        lines = estimate(filter(None, jobs), measured_rates("results", CONFIG.models) if any(jobs) else {})
        return "\n".join(filter(None, [message, report_hours(lines)])), numbers

    dag.stats = stats


def refuse_unrecorded(dag):
    """Stop where a changed configuration could not be noticed.

    Snakemake remembers in `.snakemake` with which settings a result was made. For results that it has no memory of it
    only looks at time stamps, so a changed learning rate would leave them stale without a word.
    """
    record = Path("results/config.yaml")
    jobs = [job for job in dag.jobs if dag.reason(job).no_metadata and not dag.needrun(job)]
    unrecorded = sum(job.rule.is_script and all(map(os.path.exists, job.output)) for job in jobs)
    if not unrecorded:
        return
    if not record.exists():
        logger.warning(
            f"{unrecorded} finished results have no record in .snakemake, and {record} is gone: they are taken for "
            "results of this configuration."
        )
        return
    try:
        changed = read_config(record).identity != CONFIG.identity
    except ConfigError as error:
        raise WorkflowError(f"{error}\nIt tells what {unrecorded} finished results were made with: put it back")
    if changed:
        raise WorkflowError(
            f"{unrecorded} finished results have no record in .snakemake, so nobody can tell which of them the "
            f"changed configuration makes stale. Run `snakemake --configfile {record} --touch --forceall` once, "
            "which records them with the configuration they were made with, then this command again."
        )


def category(title):
    """A heading of the report's menu, which every page shows: a demonstration says so there too."""
    return f"{title} (synthetic demonstration)" if CONFIG.demonstration else title


def write_report(path):
    """Render the report of the finished grid, as `snakemake --report` does."""
    command = [sys.executable, "-m", "snakemake", "--snakefile", workflow.main_snakefile, "--report", path]
    subprocess.run([*command, "--configfile", "results/config.yaml", "--quiet", "all"], check=True)


def caption_file(name):
    """The caption of a table or figure, relative to the working directory, so that a project can be moved."""
    return os.path.relpath(Path(workflow.basedir) / f"workflow/report/{name}.rst")
