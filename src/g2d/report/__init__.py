"""The page `results/report/index.html`, and other output for readers."""
