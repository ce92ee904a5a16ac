"""State of a grid: finished, running, failed and remaining jobs."""
