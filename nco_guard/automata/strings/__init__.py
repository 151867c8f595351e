"""Strings searched for: exactly, or with case and word borders folded; and looked up in finished text."""
