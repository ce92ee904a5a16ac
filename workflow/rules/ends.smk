# That a job has ended is said by the Snakemake that plans, and not by the one that runs inside a cluster's job: should
# the first be killed, the outputs of that job stay marked as unfinished, and the next run makes them again. Otherwise
# they would lie there without a record, or with that of older settings. Guarded like the patches in guards.smk.

from snakemake.persistence.file import FilePersistence

if not callable(getattr(FilePersistence, "_unmark_incomplete", None)):
    raise WorkflowError("This Snakemake is not one that this workflow is made for: pip install 'snakemake>=9.27,<10'")

if not workflow.is_main_process:
    FilePersistence._unmark_incomplete = lambda self, key: None
