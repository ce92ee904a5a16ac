"""Tables: tidy tables of a finished grid, and what the papers printed beside them."""
