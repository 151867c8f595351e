"""Where matches are in text, finished or still arriving."""
