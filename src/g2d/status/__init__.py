"""State of a grid: which jobs there are, which have finished, run or failed, and which remain."""
