"""GRPO: keys, trainer and rollouts."""
