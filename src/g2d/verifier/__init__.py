"""Verifier: text of a completion in, a `Verdict` out."""

from g2d.verifier.verdict import Judgement, Verdict

__all__ = ["Judgement", "Verdict"]
