"""Bodies of the jobs that train and sample."""
