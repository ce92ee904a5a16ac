"""Rates of the paper's Table 1: GPU-hours of 7-8B models on one A100 80GB.

It has one number for the harvest and the DPO on it (the row with K=0), which is split in half here, and none for
evaluation. Hours of GRPO grow with the completions of its steps: a step takes twice as long with G=4 as with G=2, so it
has as many prompts, 8 by appendix B's batch of 4 x 4 completions at G=2.
"""

from statistics import mean

# Table 1, GRPO with K=1000: 26.6, 27.2 (G=2) and 52.2, 54.2 (G=4) GPU-hours, for 1000 steps of 8 x G completions:
HOURS_PER_COMPLETION = mean((26.6 / 16_000, 27.2 / 16_000, 52.2 / 32_000, 54.2 / 32_000))
# Table 1, DPO with K=0: 2.2 and 2.6 GPU-hours for 12,000 rollouts and DPO on their pairs.
HOURS_OF_HARVEST_AND_DPO = mean((2.2, 2.6))
PUBLISHED = {
    "train_grpo": HOURS_PER_COMPLETION,
    "train_semi_online_dpo": HOURS_PER_COMPLETION,  # GRPO's, which generates most of the time as well
    "harvest_rollouts": HOURS_OF_HARVEST_AND_DPO / 2,
    "train_dpo": HOURS_OF_HARVEST_AND_DPO / 2,
}
