"""Kinds, labels and contracts that every other Shoal package shares."""
