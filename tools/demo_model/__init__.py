"""How the demonstration model was made: its corpus and its training, `python -m tools.demo_model --output DIR`."""
