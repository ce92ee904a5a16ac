"""Regimes: how a policy is trained, one module each, its keys on top. They import torch and TRL when they train."""
