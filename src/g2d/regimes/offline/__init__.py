"""Trainings on the harvest of a policy."""
