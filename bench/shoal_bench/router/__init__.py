"""bench-router: how fast, how lean and how much in the way each router is; the data path only, one core each."""
