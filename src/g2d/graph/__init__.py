"""The table of jobs of a grid: inputs, outputs and params."""
