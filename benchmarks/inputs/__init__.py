"""What all methods are given: policies, texts, models."""
