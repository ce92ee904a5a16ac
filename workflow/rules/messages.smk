# Additions to Snakemake's messages (hours, advice, shorter lists), and what follows a run.

import logging
import shlex
import subprocess
import time
from functools import cache, partial

from snakemake.logging import DefaultFormatter, is_quiet_about
from g2d.forecast.devices import device_here
from g2d.forecast.hours import hours_left, report as report_hours
from g2d.jobs.digests import is_as_read
from g2d.status import changes


class OneLine(DefaultFormatter):
    """Writes one line at the start of a job, and one at its end. Snakemake's log file keeps its own format."""

    HIDDEN = (
        "Select jobs to execute",
        "Execute ",
        "Exiting because a job execution failed",  # `say_failures_last`
        'Provided resources: gpu=Resource("gpu", 10000)',
    )  # the last: no GPU

    def __init__(self, quiet, show_failed_logs):
        super().__init__(quiet, show_failed_logs)
        self.running = {}  # message and start by job id
        self.finished = []  # job ids since the last record of progress

    def format(self, record):
        text = super().format(record)
        if text.startswith("RuleException:\nCalledProcessError") and text.endswith("non-zero exit status 1."):
            return ""  # the script has said why
        return "" if text.startswith(self.HIDDEN) else text  # the handler writes no empty text

    def format_job_info(self, msg):
        if not msg["rule_msg"]:
            return super().format_job_info(msg)
        self.running[msg["jobid"]] = (msg["rule_msg"], time.monotonic())
        line = msg["rule_msg"] if workflow.dryrun else f"{time.strftime('%H:%M:%S')}  {msg['rule_msg']}"
        if is_quiet_about(self.quiet, "reason"):
            return line
        return f"{line}\nReason: {msg['reason']}"

    def format_job_finished(self, msg):
        self.finished.append(msg["job_id"])
        return ""

    def format_job_error(self, msg):
        reason = reason_of_failure(msg)
        if reason is None:
            return super().format_job_error(msg)
        message, _ = self.running.pop(msg["jobid"], ("", 0))
        error = f"Error in rule {msg['rule_name']}"
        line = f"{time.strftime('%H:%M:%S')}  {error}: {message}"
        # A job of a cluster prints the reason elsewhere.
        return f"{line}\n{reason}" if workflow.execution_settings.use_threads else line

    def format_progress(self, msg):
        lines = []
        for job in self.finished:
            line = f"{time.strftime('%H:%M:%S')}  {msg['done']} of {msg['total']} done"
            if job in self.running:  # not with `--quiet rules`
                message, start = self.running.pop(job)
                line += f": {message} ({time.monotonic() - start:.0f} s)"
            lines.append(line)
        self.finished = []
        return "\n".join(lines)


def shorten_messages():
    if not READ_FIRST or not workflow.is_main_process:
        return
    settings = workflow.output_settings
    for handler in logger.handlers:
        if handler.name == "DefaultStreamHandler":
            handler.setFormatter(OneLine(settings.quiet, settings.show_failed_logs))
        elif handler.name == "DefaultLogFileHandler":
            handler.setFormatter(DefaultFormatter(show_failed_logs=settings.show_failed_logs))  # with all reasons


@cache
def forecast(dag):
    """Return the hours of the planned jobs by stage, and the device they are for."""
    # Snakemake sets use_threads if the executor is not local, also in a dry-run.
    device = device_here(CONFIG.engine.name, elsewhere=workflow.execution_settings.use_threads)
    jobs = [as_planned(job) for job in jobs_of_g2d(dag.needrun_jobs(exclude_finished=False)) if job.output]
    return hours_left(GRID, jobs, RESULTS, device, finished_here()), device


def is_shell_here():
    """Return whether the user's shell is in the folder of this run (else it has --directory)."""
    return Path.cwd() == Path(os.environ.get("PWD", ".")).resolve()


def not_loaded():
    """Return a line on files that only `g2d config check` loads, or None if the configuration has none."""
    sources = [*CONFIG.models.values(), *CONFIG.problem_sources.values(), *CONFIG.rewards.values()]
    paths = [getattr(source, "path", None) or getattr(source, "file", None) for source in sources]
    if not any(paths) and CONFIG.verifier is None:
        return None
    check = shlex.join(["g2d", "config", "check", *FILES])
    if not is_shell_here():
        check = f"cd {shlex.quote(str(Path.cwd()))} && {check}"  # paths are relative to --directory
    return f"`{check}` also loads the local models, problems and Python files, which a plan does not."


def say_hours(dag):
    """Add hours to Snakemake's job table."""

    def with_hours(record):
        if workflow.dryrun and str(record.msg).startswith("This was a dry-run"):
            record.msg = "\n".join(filter(None, [report_hours(*forecast(dag)), record.msg, not_loaded()]))
        elif not workflow.dryrun and event_of(record) == LogEvent.RUN_INFO:
            record.msg = "\n".join(filter(None, [record.msg, report_hours(*forecast(dag))]))
        return True

    logger.addFilter(with_hours)


LONG_RUN = 1 / 6  # hours


def point_to_status(dag):
    """Name `g2d status --watch` when the first training of a long run starts: a training itself prints nothing."""
    if workflow.dryrun:
        return
    lines, _ = forecast(dag)
    if sum(line.hours or 0 for line in lines) < LONG_RUN:
        return

    def starts_training(record):
        is_start = event_of(record) == LogEvent.JOB_INFO
        return is_start and own_name(record.rule_name) in (*ONLINE_STAGES, *OFFLINE_STAGES)

    watch = shlex.join(["g2d", "status", *([] if is_shell_here() else [str(RESULTS.absolute())]), "--watch"])
    say_it = partial(logger.warning, f"`{watch}`, in another terminal, shows steps and the time left.")
    at_record(starts_training, [say_it])


def say_what_changed(dag):
    """Say which keys changed since jobs finished, and what these jobs took."""
    if not workflow.is_main_process:
        return
    reruns = []
    for job in jobs_that_replace_results(dag):
        change = changed_params(dag, job)
        reruns.append(changes.Rerun(own_name(job.rule.name), change.only_old, change.only_new, costs_of(job)))
    replaced = changes.report(reruns)
    if replaced:
        logger.warning(replaced)


def say_which_results_changed(dag):
    """Name a result that is not what a finished job read, or of which this is unknown."""
    if not workflow.is_main_process:
        return
    changed = {}  # first such input by job
    for job in jobs_of_g2d(dag.needrun_jobs()):
        if looks_newer(dag, job):
            for file in sorted(dag.reason(job).updated_input):
                if not is_as_read(job.log[0], file):
                    changed.setdefault(job, file)
    if changed:
        first = next(iter(changed.values()))
        logger.warning(
            f"{counted(len(changed), 'finished job', 'run')} again because results have changed since they were read, or their digest is "
            f"not recorded (first: {first})"
        )


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


def reason_of_failure(msg):
    """Return what a failed job of g2d printed, or None."""
    reasons = [error_of(log, msg["rule_name"]) for log in msg["log"]]
    return next((plain(reason, lines=True) for reason in reasons if reason), None)


def say_failures_last():
    """Make the reasons of failed jobs the last lines of a run."""
    failed = {}  # reason by job id

    def with_reasons(record):
        event = event_of(record)
        if event == LogEvent.JOB_ERROR:
            failed[record.jobid] = reason_of_failure(vars(record))
        elif event == LogEvent.JOB_FINISHED:
            failed.pop(record.job_id, None)  # after another attempt
        elif str(record.msg).endswith("At least one job did not complete successfully."):
            record.msg = "\n".join(filter(None, failed.values())) or record.msg
        return True

    if READ_FIRST and workflow.is_main_process:
        logger.addFilter(with_reasons)


def shorten_interrupt():
    """After Ctrl-C, print how to go on instead of an error for each job that it stopped."""
    stopped = []
    stopped_jobs = []  # jobs that ended before Snakemake noticed

    def is_shown(record):
        text = str(record.msg)
        if text.startswith("Terminating processes on user request"):
            stopped.append(record)
        elif stopped and text.startswith("Elapsed time"):  # the last line
            record.msg = f"{text}\nFinished jobs stay: type the same command to go on."
        elif text.endswith("non-zero exit status 130."):  # Ctrl-C
            stopped_jobs.append(record)
            return False
        elif stopped_jobs and event_of(record) == LogEvent.JOB_ERROR:
            stopped_jobs.pop()
            return False
        return not stopped or record.levelno < logging.ERROR

    if READ_FIRST and workflow.is_main_process:
        logger.addFilter(is_shown)


def hold_back_interrupts():
    """Let Ctrl-C wait until a job has imported g2d (`allow_interrupt`): Python would print the stack of an import."""
    is_own = READ_FIRST and workflow.modifier.is_main_snakefile()  # a prefix holds for all rules of a workflow
    if not is_own or workflow.deployment_settings.deployment_method:
        return
    blocked = ["env", "--block-signal=INT"]  # GNU
    if subprocess.run([*blocked, "true"], capture_output=True).returncode == 0:
        shell.prefix(f"set -euo pipefail; {' '.join(blocked)} ")


# After a run.


def discard_tables_of_removed_sections():
    removed = all_tables.left_over(GRID, RESULTS / "tables")
    if removed:
        print(f"Tables that this configuration does not have: {to_trash(RESULTS, removed)}")


def say_how_to_upload():
    if CONFIG.logging.report_to != "wandb":
        return
    command = sync_command()
    if command:
        say(f"W&B: `{command}` uploads what was reported, where there is a network")


def say_accuracies_of_targets():
    """Print the accuracies of each K that is a target, such as k50."""
    for k in KS:
        if renamed(f"k{k}") in workflow.dag_settings.targets:
            from g2d.report.sentences import accuracies_at  # imports pandas
            from g2d.tables.inputs import Inputs

            print("\n".join(accuracies_at(k, Inputs(GRID, RESULTS).build("main"))))


def say_where_the_page_is():
    page = "results/report/index.html"
    is_default = not workflow.dag_settings.targets and workflow.default_target == ALL
    if is_default and os.path.exists(page):  # it does not with --until
        print(f"\nReport:  {os.path.abspath(page)}")  # relative paths would be wrong with --directory
