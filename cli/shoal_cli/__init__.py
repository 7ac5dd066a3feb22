"""The command line: `shoal` and `kubectl shoal`."""
