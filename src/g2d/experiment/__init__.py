"""The configuration, the grid, and the way from wildcards to files and settings."""
