"""Recorded traffic through simulated engines behind Shoal and behind its peers in turn: `make bench-routing`.

Engines, router and load generator are real processes with real sockets; only the time that a GPU would take is
simulated, and all of it is compressed by one factor (see `workloads`). Every figure is in seconds of the model.
"""
