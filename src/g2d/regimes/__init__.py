"""Ways to train a policy, one module each, keys first. torch and TRL are only imported for training."""
