"""The report that opens without a server: `results/report/index.html`, one file with everything in it.

`page` lays it out, from `answer` (the three sentences), `charts` (Vega-Lite), `tables` (any CSV), `pair_browser` (the
same problem across K) and `markup` (model text as HTML that cannot act).
"""
