"""A way to make Math-Verify's parser faster without changing what it reads; for worker processes.

Nearly all of Math-Verify's time goes into ANTLR's Python runtime. The change depends on pinned versions and is not
needed for correctness.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from antlr4.atn.PredictionMode import PredictionMode
from latex2sympy2_extended.latex2sympy2 import _Latex2Sympy


def install() -> None:
    """Parse in two stages from now on, in all of this process."""
    _Latex2Sympy.create_parser = in_two_stages(_Latex2Sympy.create_parser)


def in_two_stages(create_parser: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    """Try ANTLR's SLL prediction first, and the full LL prediction only where that fails.

    ANTLR guarantees that SLL either gives the tree that LL gives or reports a syntax error. LL, the default, computes
    the contexts of ambiguous decisions anew for every answer, while SLL's decisions stay in a table.
    """

    def create(self: Any, latex: str) -> Any:
        parser = create_parser(self, latex)
        parse = parser.math

        def math() -> Any:
            parser._interp.predictionMode = PredictionMode.SLL
            try:
                return parse()
            except Exception:  # latex2sympy raises bare ones for syntax errors
                return create_parser(self, latex).math()

        parser.math = math
        return parser

    return create
