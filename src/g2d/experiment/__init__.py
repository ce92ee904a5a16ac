"""The configuration, the grid, and the bodies of trainings and generation."""
