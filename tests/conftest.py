"""What every test shares: hypothesis profiles and the plugins and fixture modules of `shoal_testing`."""

import os

from hypothesis import HealthCheck, settings

pytest_plugins = [
    "shoal_testing.parallel",
    "shoal_testing.routerbuild",
    "shoal_testing.apiserver",
    "shoal_testing.kinds",
    "shoal_testing.golden",
    "shoal_testing.nodeagent",
]

# No deadline: the machine is shared, and a slow example is not a wrong one.
settings.register_profile("default", deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("thorough", deadline=None, max_examples=2000, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
