# G2D: how much online RL is enough? (arXiv 2605.21266)
#
#   snakemake --cores 2                     the demonstration, then open results/report/index.html
#   snakemake --cores 2 k50                 everything that belongs to one K, and its accuracies
#   snakemake --cores 2 k50 -R harvest      the same, with the harvest of that K made again (the same rollouts)
#   snakemake -n --configfile config/paper.yaml      plan the paper's grid
#   snakemake --profile slurm               the paper's grid on a Slurm cluster (docs/slurm.md)
#
# The configuration (config/README.md) sets what runs, profiles (profiles/) how. workflow/Snakefile is in the place that
# snakedeploy and `module` expect; this file lets Snakemake find profiles/default.


include: "workflow/Snakefile"


workflow.default_target = "all"  # a target in an included file is not a default
