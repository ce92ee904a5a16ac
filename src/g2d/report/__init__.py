"""The report that opens without a server: `results/report/index.html`, one file, laid out by `page`."""
