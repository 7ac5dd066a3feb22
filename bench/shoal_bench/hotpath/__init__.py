"""Where the router's time goes: profiles of three loads, flame graphs, and a table of stages. `make bench-hot-path`."""
