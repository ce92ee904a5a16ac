"""Rewards map a problem and its completions to one number each, or to a status."""
