"""Rollouts: the `Rollout` record, and engines that generate them (transformers, vLLM, replay)."""
