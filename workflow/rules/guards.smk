# Questions about a plan that a user would miss: does a file outside of results/ differ, would finished results of another
# configuration be replaced, are there results without a record? (docs/architecture.md)

import glob
import shlex

from g2d.checks.load import owner, read as read_config, read_record
from g2d.jobs.digests import changed_inputs, keep_if_same
from g2d.policies.pretrained import link_weights
from g2d.regimes.common.checkpoints import MANIFEST, is_whole

JOBS_OF_TARGET = {
    "calibration": {"calibrate"},
    "harvest": {"harvest_rollouts"},
    "tables": {"make_tables"},
}
BASE_MODELS = {"embedded_model", "pretrained_model"}  # rules that make M0
# Configuration files of this run; if results/config.yaml is given, the files it lists.
RECORD = RESULTS / "config.yaml"
FILES = [os.path.relpath(file) for file in CONFIG_FILES]
if FILES == [str(RECORD)] and (before := owner(RECORD)):
    FILES = before.files


def require_rules_of_regimes():
    """Stop if no rule trains a regime of the catalogue; a module may leave rules out."""
    if not workflow.modifier.is_main_snakefile():
        return
    names_of_rules = {one.name for one in workflow.rules}
    for name, regime in REGIMES.items():
        if f"train_{name}" not in names_of_rules:
            raise Refusal(
                f"{name}: no rule trains this regime of src/g2d/regimes/catalogue.py; add train_{name} to "
                f"workflow/rules/{regime.phase}.smk"
            )


def refuse_unreadable_records():
    """Stop if a finished training has an unreadable record: Snakemake drops the errors of its input functions."""
    for policy in GRID.online_trainings:
        continued(policy)


def refuse_unknown_k():
    """Stop with a sentence if a target names a K that is not configured: Snakemake would miss a rule."""
    for target in workflow.dag_settings.targets:
        k = re.fullmatch(renamed(r"k(\d+)"), target)
        if k and int(k[1]) not in KS:
            raise Refusal(
                f"{target}: K={k[1]} is not in warmup.steps, nor in steps of an ablation or entry: add it there, or choose one of "
                f"{', '.join(renamed(f'k{known}') for known in KS)}"
            )


def force_jobs_of_targets():
    """Let `-R <target>` force all jobs of the target.

    A target has no wildcards but the rules of its jobs do, so `harvest` cannot name both. (tests: test_stale.py, test_grid.py)
    """
    settings = workflow.dag_settings
    for target, jobs in JOBS_OF_TARGET.items():
        if renamed(target) in settings.forcerun:
            settings.forcerun = {*settings.forcerun, *map(renamed, jobs)} - {renamed(target)}


def force_edited_inputs():
    """Force jobs whose files outside of results/ have changed. They are compared by digest, so they may have moved."""
    settings = workflow.dag_settings
    forced = set()
    edited = []
    try:
        for rule_name, output, files in [*edited_problems(), *edited_models()]:
            if files and (not settings.allowed_rules or renamed(rule_name) in settings.allowed_rules):
                forced.add(output)
                edited += files
    except (OSError, ValueError) as error:
        raise Refusal(plain(str(error), lines=True))
    if edited:
        more = f" and {len(edited) - 9} more" if len(edited) > 9 else ""
        logger.info(
            f"Jobs run again, because these files are not the ones that they read: {', '.join(edited[:9])}{more}"
        )
    settings.forcerun = {*settings.forcerun, *forced}


def keep_same_results(dag):
    """Set time stamps so that no finished job runs again for inputs that are as it read them, also in a dry-run.

    Return whether a time stamp was set. Files are only read if a job would run again because of time stamps.
    """
    if not any(looks_newer(dag, job) for job in jobs_of_g2d(dag.jobs)) or recover.is_locked(Path.cwd()):
        return False
    kept = 0
    try:
        for level in dag.toposorted():
            for job in jobs_of_g2d(level):
                if job.output and is_finished(job):
                    dated = [file for file in job.input if not file.is_ancient]
                    kept += keep_if_same(job.log[0], dated, dated_outputs(job))
    except PermissionError as error:
        logger.warning(f"{error.filename}: its time stamp cannot be set, so results that look older are made again")
    except (OSError, ValueError) as error:
        raise Refusal(plain(str(error), lines=True))
    if kept:
        logger.info(
            f"{counted(kept, 'finished job', 'stay')}: files look newer than what was made from them, but have the same content (recorded "
            "digests). Their time stamps have been set."
        )
    return kept > 0


def edited_problems():
    """Yield rule, output, and changed files of each job that reads problems."""
    for name, source in CONFIG.problem_sources.items():
        files = changed_inputs(f"results/logs/load_problems/{name}.log", problem_files(source))
        yield "load_problems", f"results/problems/{name}.jsonl", files


def edited_models():
    """Yield rule, output, and changed files of each job that reads a model."""
    for model, source in CONFIG.models.items():
        files = changed_inputs(base_model_log(model), model_files(source))
        if not files:
            link_weights(source, Path(f"results/{model}/base/model"))
        yield base_model_rule(model), f"results/{model}/base/policy.json", files


def refuse_emptied(dag):
    """Stop if a training would resume from a checkpoint that was emptied (`checkpoints.keep: last`)."""
    for job in jobs_of_g2d(dag.needrun_jobs()):
        made_now = set()
        for other, files in dag.dependencies[job].items():
            if dag.needrun(other):
                made_now |= set(files)
        for folder in job.input.get("checkpoint", []):
            if folder not in made_now and (Path(folder) / MANIFEST).is_file() and not is_whole(Path(folder)):
                raise Refusal(
                    f"{folder}: {job.output.policy} would continue from it, but it was emptied (checkpoints.keep: last): "
                    "delete the folder to have it made again, with what depends on it"
                )


def refuse_incomplete(dag):
    """Stop if a job reads from a finished one that lacks other outputs: Snakemake does not compare its settings then."""
    for job in jobs_of_g2d(dag.needrun_jobs()):
        for other in jobs_of_g2d(dag.dependencies[job]):
            if dag.needrun(other):
                continue
            missing = [file for file in other.output if not os.path.exists(file)]
            if missing:
                raise Refusal(
                    f"{missing[0]} is missing, so it is unknown whether the other files of {own_name(other.rule.name)} have "
                    f"these settings: delete {os.path.dirname(other.output[0])} to have them made again"
                )


def refuse_to_replace(dag):
    """Stop a run that would replace the finished results of other configuration files; a dry-run only warns.

    Changed values in the same files make jobs run again. Other files may add results.
    """
    if not workflow.is_main_process or not RECORD.exists():
        return
    try:
        read_record(RECORD)
    except ConfigError as error:
        again = jobs_that_replace_results(dag)
        if again and not workflow.dryrun:
            raise Refusal(
                f"{plain(str(error), lines=True)}\n{counted(len(again), 'finished job')} would run again, and this file tells whose "
                "results they are: put it back, or delete it to have them replaced"
            )
    before = owner(RECORD)
    if before is None or before.config.identity == CONFIG.identity:
        return
    again = jobs_that_replace_results(dag)
    others = before.files != FILES and before.shares_no_model(CONFIG) and glob.glob("results/*/seed*/*")
    if not others and not (again and before.came_from_others(FILES)):
        return
    named = f" ({', '.join(before.files)})" if before.files else ""
    lost = f"{counted(len(again), 'finished job')} would run again" if again else "its tables would be replaced"
    message = (
        f"results/ is of another configuration, {before.config.title!r}{named}: {lost}. Give this one a folder of its own "
        "(snakemake --directory runs/NAME ...), or delete results/config.yaml to have them replaced"
    )
    if not workflow.dryrun:
        raise Refusal(message)
    logger.warning(message)


def with_record(*arguments):
    """Command line of Snakemake with the configuration of the results, for the user's shell."""
    if is_shell_here():
        return shlex.join(["snakemake", *arguments, "--configfile", str(RECORD)])
    here = ["--snakefile", workflow.main_snakefile, "--directory", str(Path.cwd())]
    return shlex.join(["snakemake", *arguments, *here, "--configfile", str(RECORD.absolute())])


def refuse_unrecorded(dag):
    """Stop if results may be stale without Snakemake noticing.

    Snakemake records the settings of every result in `.snakemake`. It compares only time stamps of results without a
    record, so a changed learning rate would silently leave them stale.
    """
    unrecorded = 0
    for job in jobs_of_g2d(dag.jobs):
        if dag.reason(job).no_metadata and not dag.needrun(job) and job.rule.is_script and is_finished(job):
            unrecorded += 1
    if not unrecorded:
        return
    if not RECORD.exists():
        logger.warning(
            f"{unrecorded} finished results have no record in .snakemake, and {RECORD} is gone: they are taken for "
            "results of this configuration."
        )
        return
    try:
        changed = read_config(RECORD).identity != CONFIG.identity
    except ConfigError as error:
        raise Refusal(
            f"{plain(str(error), lines=True)}\nIt tells what {unrecorded} finished results were made with: put it back"
        )
    if changed:
        raise Refusal(
            f"{unrecorded} finished results have no record in .snakemake, so it is unknown which of them the "
            f"changed configuration makes stale. Run `{with_record('--touch', '--forceall')}` once, "
            "which records them with the configuration they were made with, then this command again."
        )


def due_sources(dag):
    """Return the keys of models, problems and rewards that jobs of this run read from the Hub."""
    if workflow.executor_plugin.name == "touch":
        return set()
    keys = set()
    for job in jobs_of_g2d(dag.needrun_jobs()):
        name = own_name(job.rule.name)
        if name in BASE_MODELS:
            keys.add(f"models.{job.wildcards.model}")
        elif name == "load_problems":
            keys.add(place_of(job.wildcards.set))
        if "reward" in job.params.get("settings", {}):
            keys |= {f"rewards.{reward}" for reward in CONFIG.rewards}
    return keys


def fetch_judges(dag):
    """Fetch the reward models of this run before its first job starts."""
    if workflow.dryrun or not workflow.is_main_process:
        return
    settings = [job.params.get("settings", {}) for job in jobs_of_g2d(dag.needrun_jobs())]
    try:
        fetch_reward_models(CONFIG, [section["reward"] for section in settings if "reward" in section])
    except ConfigError as error:
        raise Refusal(plain(str(error), lines=True))
