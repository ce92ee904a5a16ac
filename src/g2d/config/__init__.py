"""Keys of the configuration: `Config` and its sections."""
