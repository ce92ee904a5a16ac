"""Rewards: a problem and its completions in, a number for each out, or the reason why there is none."""
