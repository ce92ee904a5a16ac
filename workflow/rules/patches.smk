# All uses of private Snakemake 9 APIs: a step between plan and run, also in a dry-run (`onstart` is not called there),
# `-R` with a target, handlers of a module, and unfinished outputs. The names are checked, so that another version of
# Snakemake fails with a clear message.

from snakemake import __version__ as snakemake_version
from snakemake.dag import DAG
from snakemake.exceptions import WorkflowError
from snakemake.persistence.file import FilePersistence

PRIVATE = [(workflow, name) for name in ("_build_dag", "async_run", "_onstart", "_onsuccess")]
PRIVATE += [(FilePersistence, "_unmark_incomplete")]
PRIVATE += [(DAG, name) for name in ("reason", "needrun", "update_needrun", "needrun_jobs")]

if int(snakemake_version.partition(".")[0]) >= 10 or not all(hasattr(owner, name) for owner, name in PRIVATE):
    raise WorkflowError(
        f"Snakemake {snakemake_version} is not one that this workflow is made for: pip install 'snakemake>=9.27,<10'"
    )


def when_planned(jobs_of_target, *steps):
    """Call every step with the DAG once it is built; `-R <target>` forces all jobs of the target.

    A target has no wildcards but the rules of its jobs do, so `harvest` cannot name both. (tests: test_stale.py, test_grid.py)
    """
    build, renamed = workflow._build_dag, workflow.modifier.modify_rulename
    if build.__name__ == "build_and_go_on":  # a module is read again for every `use rule ... with`
        return

    def build_and_go_on(*args, **kwargs):
        dag = workflow.dag
        for target, jobs in jobs_of_target.items():
            target = renamed(target)
            if target not in workflow.dag_settings.forcerun:
                continue
            dag.forcerules |= {workflow.get_rule(renamed(name)) for name in jobs}
            if target not in workflow.dag_settings.targets:
                dag.targetrules.discard(workflow.get_rule(target))
        build(*args, **kwargs)
        for step in steps:
            step(dag)

    workflow._build_dag = build_and_go_on


def call_handlers_of_a_module():
    """Call `onstart` and `onsuccess` of this file if the Snakefile that uses it defines none."""
    if not workflow.modifier.is_main_snakefile():
        workflow._onstart, workflow._onsuccess = (globals()[name].func for name in ("onstart", "onsuccess"))


# Only the Snakemake that plans clears the unfinished mark of outputs, not the one inside a cluster job: if the first is
# killed, the next run makes them again. (test: slurm/test_faults.py)
if not workflow.is_main_process:
    FilePersistence._unmark_incomplete = lambda self, key: None
