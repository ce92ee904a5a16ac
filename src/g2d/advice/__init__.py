"""Advice before the grid: which levels to train on, which K looks best and with which probability, and what it costs.

It is based on the calibration and on a probe, a few training prompts harvested at every K of the first seed. A
rollout's random numbers depend on its problem and sample, so the probe is a part of the harvest to come, and its
intervals are for that harvest, not for other seeds. `check` compares the advice with the finished grid
(docs/analysis.md, Advice before the grid).
"""
