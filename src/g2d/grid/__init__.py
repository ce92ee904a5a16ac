"""All that a configuration asks for: runs, policies, harvests, and what each training reads."""
