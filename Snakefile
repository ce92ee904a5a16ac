# G2D: how much online RL is enough? (arXiv 2605.21266)
#
#   snakemake --cores 2                     the demonstration, then open results/report/index.html
#   snakemake --cores 2 k50                 everything that belongs to one K
#   snakemake --cores 2 k50 -R harvest      the same, with that K's harvest drawn again
#   snakemake -n --configfile config/paper.yaml      what the paper's grid would run
#   snakemake --profile slurm               the paper's grid on a Slurm cluster (docs/slurm.md)
#
# Config says WHAT runs (config/README.md), profiles say HOW (profiles/).


import os

from snakemake.utils import min_version

min_version("9.27")


# A file given with --configfile replaces the demonstration; Snakemake alone would merge it over it.
if not workflow.config_settings.configfiles:

    configfile: os.path.relpath(os.path.join(workflow.basedir, "config/config.yaml"))


report: "workflow/report/workflow.rst"


include: "workflow/rules/common.smk"
include: "workflow/rules/targets.smk"
include: "workflow/rules/patches.smk"
include: "workflow/rules/guards.smk"
include: "workflow/rules/base_model.smk"
include: "workflow/rules/problems.smk"
include: "workflow/rules/calibration.smk"
include: "workflow/rules/trainings.smk"
include: "workflow/rules/harvest.smk"
include: "workflow/rules/advice.smk"
include: "workflow/rules/evaluation.smk"
include: "workflow/rules/sweep.smk"
include: "workflow/rules/contamination.smk"
include: "workflow/rules/open_ended.smk"
include: "workflow/rules/selection.smk"
include: "workflow/rules/summary.smk"
include: "workflow/rules/cards.smk"
include: "workflow/rules/report.smk"


# Targets for people: `snakemake calibration`, `advice`, `sweep`, `harvest`, `tables`, `audit`, or one per K, such as `snakemake k150`.


rule all:
    input:
        expand("results/tables/{table}.{format}", table=TABLES, format=["csv", "html"]),
        expand("results/figures/{figure}.svg", figure=FIGURES),
        CARDS,
        "results/report/index.html",


rule calibration:
    input:
        expand("results/{model}/calibration/levels.csv", model=CONFIG.models),


rule harvest:
    input:
        [f"results/{h.folder}/pairs.jsonl" for h in HARVESTS],


rule tables:
    input:
        expand("results/tables/{table}.csv", table=TABLES),


rule sweep:
    input:
        "results/tables/sweep.csv" if SWEPT else [],


rule advice_check:
    input:
        "results/tables/advice_check.csv",


# These two print, so they run whenever they are asked for.
localrules:
    advice,
    audit,


rule advice:
    input:
        "results/advice.md",
    log:
        "results/logs/advice.log",
    run:
        from g2d.advice.words import advice_since

        text = advice_since(input[0], "results")
        Path(log[0]).write_text(text, encoding="utf-8")
        say(text)


rule audit:
    log:
        "results/logs/audit.log",
    run:
        sys.path.append(str(workflow.basedir))
        from papers.audit import main

        main(log[0])


AT_K = [policy for policy in TRAINED if policy.role != "auto"]
for k in sorted({h.k for h in HARVESTS} | {p.k for p in AT_K}):

    rule:
        name:
            f"k{k}"
        input:
            [f"results/{h.folder}/pairs.jsonl" for h in HARVESTS if h.k == k],
            [
                f"results/{p.folder}/eval/{benchmark}.parquet"
                for p in AT_K
                for benchmark in CONFIG.benchmarks
                if p.k == k
            ],


when_planned(
    {
        "calibration": {"calibrate", "calibrate_shard"},
        "advice": {"draw_probe"},
        "harvest": {"harvest_rollouts", "harvest_rollouts_shard"},
        "tables": {"make_tables"},
    },
    refuse_unreadable,
    refuse_what_cannot_be_made,
    plan_what_is_due,
    refuse_to_replace,
    say_what_looks_newer,
    say_hours,
    fold_long_plan,
    refuse_unrecorded,
)


onstart:
    if not workflow.local_exec:
        recover.require_no_orphans(Path.cwd())
    if not workflow.deployment_settings.deployment_method:  # else the jobs' environment is not this one
        require_installed(CONFIG)
    require_repositories(CONFIG)
    try:
        CONFIG.save("results/config.yaml", FILES)
    except OSError as error:
        raise WorkflowError(plain(str(error), lines=True))


onsuccess:
    if any(job.rule.name == "make_tables" for job in workflow.dag.jobs):
        if stale := catalogue.left_over(CONFIG, Path("results/tables")):
            print(f"Tables that this configuration does not have: {to_trash(Path('results'), stale)}")
    if not workflow.dag_settings.targets:
        write_report("results/report.html")
        print(
            "\nReport:  results/report/index.html, results/report.html\nTables:  results/tables/\nFigures: results/figures/"
        )
