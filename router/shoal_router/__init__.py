"""The router: one process, one event loop, exact knowledge of everything in flight."""
