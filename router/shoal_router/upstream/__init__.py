"""Connections to engines: one protocol per pooled connection, one pool per replica, small control calls. I/O only."""
