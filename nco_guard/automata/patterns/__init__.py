"""Regular expressions and ready-made automata: read, and determinised as they are met."""
