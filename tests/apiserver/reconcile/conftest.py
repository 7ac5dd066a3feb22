"""Fixtures of the operator's tests against the real control plane."""

from shoal_testing.stage import operator_process, place, stage

__all__ = ["operator_process", "place", "stage"]
