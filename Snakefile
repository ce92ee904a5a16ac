# G2D: how much online RL is enough? (arXiv 2605.21266)
#
#   snakemake --cores 2                     the demonstration, then open results/report/index.html
#   snakemake --cores 2 k50                 everything that belongs to one K
#   snakemake --cores 2 k50 -R harvest      the same, with that K's harvest drawn again
#   snakemake -n --configfile config/paper.yaml      what the paper's grid would run
#   snakemake --profile slurm               the paper's grid on a Slurm cluster (docs/slurm.md)
#
# Config says WHAT runs (config/README.md), profiles say HOW (profiles/). The workflow is workflow/Snakefile, where
# snakedeploy and `module` expect it; from here Snakemake finds profiles/default, wherever it is called.


include: "workflow/Snakefile"


workflow.default_target = "all"  # a target of an included file is not asked for by itself
