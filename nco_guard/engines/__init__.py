"""One thin adapter per decoding engine; each imports its engine, so import the one you need."""
