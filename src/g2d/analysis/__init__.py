"""Numbers from rollouts and answers: no files of the grid, no models."""

FEWEST_STUDIES = 3  # of a synthesis: with two, the prediction interval has no degree of freedom
