"""Code common to all regimes."""
