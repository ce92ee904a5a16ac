# Questions about a plan that a user would miss: does a file outside of results/ differ, would finished results of another
# configuration be replaced, are there results without a record, how many hours? (docs/architecture.md)

import glob
import logging

from snakemake.common import NOTHING_TO_BE_DONE_MSG
from snakemake.logging import logger
from snakemake_interface_logger_plugins.common import LogEvent

from g2d.checks.load import owner, read as read_config
from g2d.forecast.devices import device_here
from g2d.forecast.hours import hours_left, report as report_hours
from g2d.jobs.digests import changed_inputs
from g2d.policies.record import changed_base_files, read_policy
from g2d.regimes.run.checkpoints import MANIFEST, is_whole

JOBS_OF_TARGET = {
    "calibration": {"calibrate"},
    "harvest": {"harvest_rollouts"},
    "tables": {"make_tables"},
}
BASE_MODELS = {"embedded_model", "gguf_model", "pretrained_model"}  # rules that make M0
# Configuration files of this run; if results/config.yaml is given, the files it lists.
RECORD = RESULTS / "config.yaml"
FILES = [os.path.relpath(file) for file in CONFIG_FILES]
if FILES == [str(RECORD)] and (before := owner(RECORD)):
    FILES = before.files or []


def is_own(rule):
    """Return whether a rule belongs to this workflow, not to one that uses it as a module."""
    return rule.module_globals["__name__"] == __name__


def jobs_of_g2d(jobs):
    return [job for job in jobs if is_own(job.rule)]


def at_record(is_awaited, steps):
    """Call the steps once, when Snakemake logs a record.

    Uses a log filter: `onstart` is called after planning, and not in a dry-run.
    """
    todo = list(steps) if READ_FIRST and workflow.is_main_process else []

    def call_steps(record):
        if todo and is_awaited(record):
            now = todo[:]
            todo.clear()
            for step in now:
                step()
        return True

    logger.addFilter(call_steps)


def before_planning(*steps):
    at_record(lambda record: event_of(record) == LogEvent.WORKFLOW_STARTED, steps)


def when_planned(*steps):
    """Call steps with the DAG before a job runs."""
    is_planned = lambda record: event_of(record) == LogEvent.RUN_INFO or record.msg == NOTHING_TO_BE_DONE_MSG
    at_record(is_planned, [lambda step=step: step(workflow.dag) for step in steps])


def event_of(record):
    return getattr(record, "event", None)


def force_jobs_of_targets():
    """Let `-R <target>` force all jobs of the target.

    A target has no wildcards but the rules of its jobs do, so `harvest` cannot name both. (tests: test_stale.py, test_grid.py)
    """
    settings = workflow.dag_settings
    for target, jobs in JOBS_OF_TARGET.items():
        if renamed(target) in settings.forcerun:
            settings.forcerun = {*settings.forcerun, *map(renamed, jobs)} - {renamed(target)}


def force_edited_inputs():
    """Force jobs whose files outside of results/ have changed: Snakemake compares large ones by time stamps."""
    settings = workflow.dag_settings
    forced, edited = set(), []
    for rule_name, output, files in edited_inputs():
        if files and (not settings.allowed_rules or renamed(rule_name) in settings.allowed_rules):
            forced.add(output)
            edited += files
    if edited:
        more = f" and {len(edited) - 9} more" if len(edited) > 9 else ""
        logger.info(f"Jobs run again because files have changed: {', '.join(edited[:9])}{more}")
    settings.forcerun = {*settings.forcerun, *forced}


def edited_inputs():
    """Rule, an output, and the files that have changed since it read them, of each job that reads such files."""
    edited = []
    try:
        for name, source in CONFIG.problem_sources.items():
            log = f"results/logs/load_problems/{name}.log"
            edited.append(
                ("load_problems", f"results/problems/{name}.jsonl", changed_inputs(log, problem_files(source)))
            )
        for model, source in CONFIG.models.items():
            log, record = base_model_log(model), f"results/{model}/base/policy.json"
            files = changed_inputs(log, model_files(source))
            # The tokenizer, chat template and configuration of M0 are no inputs: new ones would make finished jobs run again.
            if os.path.exists(record) and not GRID.is_made(model):
                require_own(record, log)
                files += changed_base_files(read_policy(record))
            edited.append((Path(log).parent.name, record, files))
    except (OSError, ValueError) as error:
        raise WorkflowError(plain(str(error), lines=True))
    return edited


def require_own(file, log):
    """Stop if a file is not the one that the job with this log recorded."""
    if changed_inputs(log, [file]):
        raise WorkflowError(f"{file}: not the file that its job wrote: put it back, or delete it to have it made again")


def refuse_emptied(dag):
    """Stop if a training would resume from a checkpoint that was emptied (`checkpoints.keep: last`)."""
    for job in jobs_of_g2d(dag.needrun_jobs()):
        made_now = set().union(*(files for other, files in dag.dependencies[job].items() if dag.needrun(other)))
        for folder in job.input.get("checkpoint", []):
            if folder not in made_now and (Path(folder) / MANIFEST).is_file() and not is_whole(Path(folder)):
                raise WorkflowError(
                    f"{folder}: {job.output.policy} would go on from it, and it was emptied (checkpoints.keep: last): "
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
                raise WorkflowError(
                    f"{missing[0]} is missing, so it is unknown whether the other files of {own_name(other.rule.name)} have "
                    f"these settings: delete {os.path.dirname(other.output[0])} to have them made again"
                )


def makes_results(job):
    """Whether a job loads, samples or trains; tables and pages may be replaced."""
    return own_name(job.rule.name) in {*BASE_MODELS, "load_problems"} or "gpu" in job.rule.resources


def refuse_to_replace(dag):
    """Stop a run that would replace the finished results of other configuration files; a dry-run only warns.

    Changed values in the same files make jobs run again. Other files may add results.
    """
    before = owner(RECORD) if workflow.is_main_process else None
    if before is None or before.config.identity == CONFIG.identity:
        return
    due = [job for job in jobs_of_g2d(dag.needrun_jobs()) if makes_results(job)]
    again = [job for job in due if all(map(os.path.exists, job.output))]
    others = before.files != FILES and before.shares_no_model(CONFIG) and glob.glob("results/*/seed*/*")
    if not others and not (again and before.came_from_others(FILES)):
        return
    named = f" ({', '.join(before.files)})" if before.files else ""
    lost = f"{len(again)} finished jobs would run again" if again else "its tables would be replaced"
    message = (
        f"results/ is of another configuration, {before.config.title!r}{named}: {lost}. Give this one a folder of its own "
        "(snakemake --directory runs/NAME ...), or delete results/config.yaml to have them replaced"
    )
    if not workflow.dryrun:
        raise WorkflowError(message)
    logger.warning(message)


def say_what_looks_newer(dag):
    """Recommend `g2d recover --times` if time stamps of large files make finished jobs run again."""
    newer = [
        job
        for job in jobs_of_g2d(dag.needrun_jobs())
        if any(file.startswith("results/") for file in dag.reason(job).updated_input.intersection(job.input))
        and all(map(os.path.exists, job.output))
    ]
    if newer and workflow.is_main_process:
        logger.warning(
            f"{len(newer)} finished jobs are to run again because a file looks newer than what was made from it. If "
            "this folder was copied without its time stamps (cp -r), stop and type g2d recover --times: it compares "
            "every file with its recorded digest, runs nothing, and makes only changed files newer"
        )


def as_planned(job):
    """A job of Snakemake as `g2d status` and the hours see it."""
    files = [str(file) for file in job.output]
    costs = [file for file in files if file.endswith("cost.json")]
    return PlannedJob(own_name(job.rule.name), dict(job.wildcards.items()), (files[0], *costs))


def write_planned_jobs(dag):
    """Write the jobs of this run, for `g2d status`."""
    jobs = [as_planned(job) for job in jobs_of_g2d(dag.jobs) if own_name(job.rule.name) in ORDER]
    write_jobs(RESULTS, sorted(jobs, key=lambda job: (ORDER.index(job.rule), job.name)))


def list_finished_jobs(dag):
    """List the jobs if there is nothing to do, because `onstart` is not called then."""
    if workflow.is_main_process and not workflow.dryrun and not list(dag.needrun_jobs()):
        write_planned_jobs(dag)


def say_hours(dag):
    """Add hours to Snakemake's job table."""

    def hours():
        # Snakemake sets use_threads if the executor is not local, also in a dry-run.
        device = device_here(CONFIG.engine.name, elsewhere=workflow.execution_settings.use_threads)
        jobs = [as_planned(job) for job in jobs_of_g2d(dag.needrun_jobs(exclude_finished=False)) if job.output]
        return report_hours(hours_left(GRID, jobs, RESULTS, device), device)

    def with_hours(record):
        if workflow.dryrun and str(record.msg).startswith("This was a dry-run"):
            record.msg = "\n".join(filter(None, [hours(), record.msg]))
        elif not workflow.dryrun and event_of(record) == LogEvent.RUN_INFO:
            record.msg = "\n".join(filter(None, [record.msg, hours()]))
        return True

    logger.addFilter(with_hours)


def fetch_judges(dag):
    """Fetch the reward models of this run before its first job starts."""
    if workflow.dryrun or not workflow.is_main_process:
        return
    settings = [job.params.get("settings", {}) for job in jobs_of_g2d(dag.needrun_jobs())]
    try:
        fetch_reward_models(CONFIG, [section["reward"] for section in settings if "reward" in section])
    except ConfigError as error:
        raise WorkflowError(plain(str(error), lines=True))


LONG_PLAN = 100  # jobs


def fold_long_plan(dag):
    """List only the first job of every rule in the dry-run of a long plan."""
    planned = len(list(dag.needrun_jobs()))
    if not workflow.dryrun or workflow.output_settings.verbose or planned <= LONG_PLAN:
        return
    listed = set()

    def is_first(record):
        if event_of(record) != LogEvent.JOB_INFO or record.rule_name not in listed:
            listed.add(getattr(record, "rule_name", None))
            return True
        return False

    logger.addFilter(is_first)
    logger.warning(f"{planned} jobs, of which the first of every rule is listed; --verbose lists all.")


def refuse_unrecorded(dag):
    """Stop if results may be stale without Snakemake noticing.

    Snakemake records the settings of every result in `.snakemake`. It compares only time stamps of results without a
    record, so a changed learning rate would silently leave them stale.
    """
    jobs = [job for job in jobs_of_g2d(dag.jobs) if dag.reason(job).no_metadata and not dag.needrun(job)]
    unrecorded = sum(job.rule.is_script and all(map(os.path.exists, job.output)) for job in jobs)
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
        raise WorkflowError(
            f"{plain(str(error), lines=True)}\nIt tells what {unrecorded} finished results were made with: put it back"
        )
    if changed:
        raise WorkflowError(
            f"{unrecorded} finished results have no record in .snakemake, so it is unknown which of them the "
            f"changed configuration makes stale. Run `snakemake --configfile {RECORD} --touch --forceall` once, "
            "which records them with the configuration they were made with, then this command again."
        )


def shorten_interrupt():
    """After Ctrl-C, print how to go on instead of an error for each job that it stopped."""
    stopped = []

    def is_shown(record):
        if str(record.msg).startswith("Terminating processes on user request"):
            stopped.append(record)
            record.msg = f"{record.msg}\nFinished jobs stay: type the same command to go on."
        return not stopped or record.levelno < logging.ERROR

    if READ_FIRST and workflow.is_main_process:
        logger.addFilter(is_shown)
