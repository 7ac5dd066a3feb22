"""A whole fleet in virtual time: the simulator's engines behind the router's production policy."""
