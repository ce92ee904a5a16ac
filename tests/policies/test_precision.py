"""The precision that a policy computes in."""

from g2d.policies.policy import Policy


def test_models_that_g2d_trained_are_scratch_models() -> None:
    def policy(source: str) -> Policy:
        return Policy("base", "m", "base", "models/m", settings={"source": source})

    assert [policy(name).is_scratch for name in ("embedded", "scratch", "local", "hub")] == [True, True, False, False]
