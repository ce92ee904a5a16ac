"""Read a configuration, and check it before a GPU hour is spent."""
