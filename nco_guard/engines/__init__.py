"""Decoding engines: a thin adapter each, in a package that imports its engine; what they share lies beside them."""
