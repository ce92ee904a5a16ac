"""Online trainings other than GRPO."""
