"""Analysis: numbers from rollouts and answers. No files of the grid, no models."""
