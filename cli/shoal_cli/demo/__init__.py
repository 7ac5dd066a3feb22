"""`shoal demo`: the whole path on one machine, shown as it happens, with a verdict at its end."""
