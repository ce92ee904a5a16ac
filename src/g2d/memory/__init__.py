"""GPU memory that a model needs: in one pass, in a training, and during generation."""
