"""What a configuration needs of a card, before anything runs on one: `g2d plan`."""
