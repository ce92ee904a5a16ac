"""Surroundings of any stage: files complete or absent, costs, attempts, stopping, locks on GPUs."""
