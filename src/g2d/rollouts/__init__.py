"""The `Rollout` record, and engines that generate rollouts (transformers, vLLM)."""
