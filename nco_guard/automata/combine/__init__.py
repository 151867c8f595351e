"""Automata made of automata: products, rewritten input, and whether one covers another."""
