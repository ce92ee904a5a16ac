"""Surroundings of any stage: complete files, costs, attempts, stopping, locks on GPUs."""
