"""Advice from calibration and a probe: levels, K, and their cost (docs/analysis.md)."""
