"""Numbers from rollouts and answers: no files of the grid, no models."""

FEWEST_STUDIES = 3  # a prediction interval of two has no degree of freedom
