"""Jobs: what surrounds any stage: files complete or absent, the bill, attempts, stopping, the turn on a GPU."""
