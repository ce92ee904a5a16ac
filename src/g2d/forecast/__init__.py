"""Forecast of memory and hours of a configuration, before anything runs (`g2d plan`)."""
