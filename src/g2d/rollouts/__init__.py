"""Rollouts: a `Rollout` record, and the engines that draw them (transformers, vLLM, replay)."""
