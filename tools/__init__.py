"""What made things that ship, and is not shipped itself."""
