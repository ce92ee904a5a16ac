"""Advice before the grid: which levels to train on, which K looks best, how sure that is, and what the rest costs.

It rests on the calibration and on a probe: a few training prompts harvested at every K of the first seed. A rollout's
random numbers belong to its problem and sample, so a probe is literally a part of the harvest to come, and its
intervals are for that harvest: no width where every prompt was probed. They say nothing about other seeds, and H is a
hint at accuracy, no measurement of it; `check` sets what was advised beside what the grid then showed.
"""
