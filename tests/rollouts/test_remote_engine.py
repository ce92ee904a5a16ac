"""An engine in another process has the methods of an engine, and no attribute besides."""

from __future__ import annotations

import pytest

from g2d.rollouts.engine_host import SharedEngine
from g2d.rollouts.remote_engine import RemoteEngine


@pytest.mark.parametrize("kind", [RemoteEngine, SharedEngine])
def test_what_an_engine_does_not_have_does_not_exist(kind: type) -> None:
    engine = object.__new__(kind)
    assert callable(engine.render) and callable(engine.generate)
    for name in ("context", "tokenizer", "generat"):
        assert not hasattr(engine, name)
