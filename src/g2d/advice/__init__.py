"""Advice from calibration and a probe: levels, K, and what they cost (docs/analysis.md, Advice before the grid)."""
