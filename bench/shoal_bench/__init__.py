"""Benchmarks of Shoal beside its peers; not part of the distribution. Each has a make target."""
