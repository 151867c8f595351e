"""nco-guard: negative constrained decoding for language models."""
