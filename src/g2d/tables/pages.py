"""Tables as pages of the report: readable in a browser without a server, with the CSV behind them to download."""

from __future__ import annotations

import base64
import html
from pathlib import Path

import pandas as pd

from g2d.plain import plain
from g2d.tables.frames import unescaped

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 1.5rem; color: #1a1a1a; }
.note { border-left: 4px solid #d55e00; padding: .4rem .8rem; background: #fff4ec; max-width: 60rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th { text-align: left; border-bottom: 2px solid #1a1a1a; position: sticky; top: 0; background: white; }
th, td { padding: .3rem .8rem; white-space: nowrap; }
tr:nth-child(even) td { background: #f4f6f8; }
td { border-bottom: 1px solid #e3e6e8; }
"""


def table_page(csv: Path, title: str, note: str | None) -> str:
    """One self-contained HTML page for a CSV table, rounded to four significant digits; `note` marks the numbers."""
    table = unescaped(pd.read_csv(csv, dtype={"levels": str}))
    body = table.to_html(
        index=False, border=0, na_rep="–", float_format=lambda value: f"{value:.4g}", escape=True, justify="unset"
    )
    marked = f'<p class="note">{html.escape(note)}</p>' if note else ""
    data = base64.b64encode(csv.read_bytes()).decode()
    link = f'<a download="{html.escape(csv.name)}" href="data:text/csv;base64,{data}">{html.escape(csv.name)}</a>'
    return plain(
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head>\n'
        f"<body><h1>{html.escape(title)}</h1>{marked}<p>Download: {link}</p>"
        f'<div class="scroll">{body}</div></body></html>\n',
        lines=True,
    )
