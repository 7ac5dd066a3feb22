"""What the scaler does with a step of load and with a wave, in virtual time. `make bench-autoscaling`."""
