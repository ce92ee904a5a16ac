"""Trainings in several processes."""
