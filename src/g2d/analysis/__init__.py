"""Numbers from rollouts and answers: no files of the grid, no models."""
