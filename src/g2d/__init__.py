"""g2d: how much online RL is enough? The G2D experiment (arXiv 2605.21266) as a package of small modules.

Every module is importable without Snakemake and without a GPU; `docs/architecture.md` says who lives where.
"""

__version__ = "0.1.0"
