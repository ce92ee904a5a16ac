"""What a model needs of a card: in a pass, in a training, while it draws."""
