"""Reads the world, asks the pure half what to do, applies it and reports: one reconciler a kind."""
