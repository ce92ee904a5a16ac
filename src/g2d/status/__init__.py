"""What has become of a grid: which jobs there are, which have finished, run or failed, and what is to come."""
