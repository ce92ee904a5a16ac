# G2D: how much online RL is enough? (arXiv 2605.21266)
#
#   snakemake --cores 2                     the demonstration, then open results/report.html
#   snakemake --cores 2 k50                 everything that belongs to one K
#   snakemake --cores 2 k50 -R harvest      the same, with that K's harvest drawn again
#   snakemake -n --configfile config/paper.yaml      what the paper's grid would run
#
# Config says WHAT runs (config/README.md), profiles say HOW (profiles/).


from snakemake.utils import min_version

min_version("9.27")


# A file given with --configfile replaces the demonstration; Snakemake alone would merge it over it.
if not workflow.config_settings.configfiles:

    configfile: "config/config.yaml"


report: "workflow/report/workflow.rst"


include: "workflow/rules/common.smk"
include: "workflow/rules/targets.smk"
include: "workflow/rules/base_model.smk"
include: "workflow/rules/problems.smk"
include: "workflow/rules/calibration.smk"
include: "workflow/rules/warmup.smk"
include: "workflow/rules/harvest.smk"
include: "workflow/rules/dpo.smk"
include: "workflow/rules/evaluation.smk"
include: "workflow/rules/summary.smk"
