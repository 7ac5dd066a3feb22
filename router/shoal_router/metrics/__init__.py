"""Counters that cost an add on the hot path and are rendered when somebody looks: rates, histograms."""
