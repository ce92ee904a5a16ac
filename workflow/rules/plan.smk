# When Snakemake plans: functions that are called with its plan, and the plan as g2d sees it.

import shutil
from functools import partial

from snakemake.common import NOTHING_TO_BE_DONE_MSG
from snakemake.logging import logger
from snakemake_interface_logger_plugins.common import LogEvent

# Snakemake has no hook between planning and the first job that a dry-run calls too. Its log has: the record that begins
# a workflow, and the record with the table of jobs (or "nothing to be done"). Filters on the logger call our steps at
# these two. A module or a job of a cluster must not call them, hence `READ_FIRST` and `is_main_process`.


def at_record(is_awaited, steps):
    """Call the steps once, when Snakemake logs a record.

    Uses a log filter: Snakemake calls `onstart` only after planning, and not in a dry-run.
    """
    if not READ_FIRST or not workflow.is_main_process:
        return
    todo = list(steps)

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

    def is_planned(record):
        return event_of(record) == LogEvent.RUN_INFO or record.msg == NOTHING_TO_BE_DONE_MSG

    at_record(is_planned, [partial(call_with_dag, step) for step in steps])


def call_with_dag(step):
    step(workflow.dag)


def event_of(record):
    return getattr(record, "event", None)


def is_own(rule):
    """Return whether a rule belongs to this workflow, not to one that uses it as a module."""
    return rule.module_globals["__name__"] == __name__


def jobs_of_g2d(jobs):
    return [job for job in jobs if is_own(job.rule)]


def is_finished(job):
    return all(os.path.exists(file) for file in job.output)


def jobs_that_replace_results(dag):
    return [job for job in jobs_of_g2d(dag.needrun_jobs()) if makes_results(job) and replaces_results(dag, job)]


def makes_results(job):
    """Whether a job loads, samples or trains; tables and pages may be replaced."""
    return own_name(job.rule.name) in {*BASE_MODELS, "load_problems"} or "gpu" in job.rule.resources


def replaces_results(dag, job):
    """Whether a planned job makes finished outputs again. Others may be missing, such as those of a new benchmark."""
    if is_finished(job):
        return True
    if not any(os.path.exists(file) for file in job.output):
        return False
    made_again = [file for file in dag.reason(job).updated_input_run if os.path.exists(file)]
    return bool(changed_params(dag, job)) or bool(made_again)


def changed_params(dag, job):
    """Return the params that changed. Snakemake compares none if an output is missing."""
    return dag.reason(job).params_changed or workflow.persistence.params_changed(job)


def costs_of(job):
    return [str(file) for file in job.output if file.endswith("cost.json")]


def dated_outputs(job):
    """Files of a finished job whose age Snakemake compares with that of its inputs: also the benchmark."""
    benchmark = [job.benchmark] if job.benchmark and os.path.exists(job.benchmark) else []
    return [*job.output, *benchmark]


def looks_newer(dag, job):
    """Whether a finished job is to run only because a result looks newer than what was made from it."""
    updated = dag.reason(job).updated_input.intersection(job.input)
    return any(file.startswith("results/") for file in updated) and is_finished(job)


def as_planned(job):
    """A job of Snakemake as `g2d status` and the hours see it."""
    return PlannedJob(own_name(job.rule.name), dict(job.wildcards.items()), (str(job.output[0]), *costs_of(job)))


def forget_answers_of_forced_jobs(dag):
    """Delete the finished answers of evaluations that `-R` makes again, because these jobs would keep them."""
    if not workflow.is_main_process or workflow.executor_plugin.name == "touch":
        return
    for job in jobs_of_g2d(dag.needrun_jobs()):
        if own_name(job.rule.name) in EVALUATIONS and dag.reason(job).forced:
            folder = Path(job.output[0]).parent.relative_to(RESULTS)
            shutil.rmtree(RESULTS / ANSWERS / folder, ignore_errors=True)


def write_planned_jobs(dag):
    """Write the jobs of this run, for `g2d status`."""
    jobs = [as_planned(job) for job in jobs_of_g2d(dag.jobs) if own_name(job.rule.name) in ORDER]
    write_jobs(RESULTS, sorted(jobs, key=lambda job: (ORDER.index(job.rule), job.name)))


def after_nothing(dag):
    """Do what follows a run if there is nothing to run, because Snakemake calls no handlers then."""
    if workflow.is_main_process and not workflow.dryrun and not list(dag.needrun_jobs()):
        write_planned_jobs(dag)
        say_accuracies_of_targets()
