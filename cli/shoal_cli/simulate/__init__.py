"""`shoal simulate`: a trace through a fleet in virtual time."""
