# All uses of private Snakemake 9 APIs: handlers of a module, unfinished outputs, and the decision which jobs run
# (docs/architecture.md). These names, and those of the DAG that other files read, are checked, so that another version of
# Snakemake fails with a clear message.

from snakemake import __version__ as snakemake_version
from snakemake.dag import DAG
from snakemake.exceptions import WorkflowError
from snakemake.persistence.file import FilePersistence

PRIVATE = [(workflow, "_onsuccess"), (FilePersistence, "_unmark_incomplete")]
PRIVATE += [
    (DAG, name) for name in ("reason", "needrun", "needrun_jobs", "dependencies", "toposorted", "update_needrun")
]

if int(snakemake_version.partition(".")[0]) >= 10 or not all(hasattr(owner, name) for owner, name in PRIVATE):
    raise WorkflowError(
        f"Snakemake {snakemake_version} is not one that this workflow is made for: pip install 'snakemake>=9.27,<10'"
    )


def call_handlers_of_a_module():
    """Call `onstart` of this file, and `onsuccess` if the Snakefile that uses it defines none."""
    if workflow.modifier.is_main_snakefile():
        return

    def start(dag):
        if not workflow.dryrun and len(dag) > 0:
            globals()["onstart"]()

    when_planned(start)
    workflow._onsuccess = globals()["onsuccess"].func


# Only the Snakemake that plans clears the unfinished mark of outputs, not the one inside a cluster job: if the first is
# killed, the next run makes them again. (test: slurm/test_faults.py)
if not workflow.is_main_process:
    FilePersistence._unmark_incomplete = lambda self, key: None


def decide_again(change):
    """Let `change(dag)` look at a new plan; if it returns true, Snakemake reads all time stamps again and decides anew."""
    decide = DAG.update_needrun

    async def update_needrun(dag, create_inventory=False):
        await decide(dag, create_inventory)
        is_new = create_inventory and dag.workflow is workflow
        if is_new and change(dag):
            for job in dag.jobs:
                dag.reason(job).clear()
            workflow.iocache.mtime.clear()
            await decide(dag, create_inventory)

    if READ_FIRST and workflow.is_main_process:
        DAG.update_needrun = update_needrun
