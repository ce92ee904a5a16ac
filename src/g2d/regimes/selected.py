"""The key that takes one checkpoint of an online training, instead of every K, as "Bridging Offline and Online RL" does
(arXiv 2506.21495, sections 3.1 and 3.3). `g2d.analysis.equal_length` has the score of open-ended prompts."""

from __future__ import annotations

from g2d.settings import Section, key

SELECTED = "selected"  # folder of the policies that are a copy of the checkpoint chosen


class Selects(Section):
    """The key that an ablation and an online entry share."""

    select: bool = key(
        False,
        "Evaluate one checkpoint alone, for every seed the K of `steps` that scores best on the development problems "
        "(docs/rewards.md); no benchmark is answered before it is chosen.",
        paper="yes, in arXiv 2506.21495",
        neutral=False,
    )
