"""Forecasts of memory, hours and power."""
