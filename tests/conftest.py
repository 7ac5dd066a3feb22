"""What every test shares: hypothesis profiles, the fixture modules of `shoal_testing`, and who runs beside whom."""

import os
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["shoal_testing.apiserver", "shoal_testing.kinds", "shoal_testing.golden", "shoal_testing.nodeagent"]

# No deadline: the machine is shared, and a slow example is not a wrong one.
settings.register_profile("default", deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("thorough", deadline=None, max_examples=2000, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

# Tests of one group run in order in one process and share what is dear to start. Longest first, so that the many
# short ones fill the processes' ends. What no prefix names is a group for each file, after all of these.
_GROUPS = (
    "apiserver/reconcile",
    "e2e",
    "apiserver/test_local_cluster_pods.py",
    "chart",
    "wire/test_router_failures.py",
    "apiserver/outage",
    "apiserver/test_local_command.py",
    "apiserver",
    "wire",
)
_TESTS = Path(__file__).parent


def _group(path: PurePosixPath) -> tuple[int, str]:
    """Place in the order, and name."""
    for place, prefix in enumerate(_GROUPS):
        if path.is_relative_to(prefix):
            return place, str(path) if prefix == "wire" else prefix
    return len(_GROUPS), str(path)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sorts by group; within one the order stays. Without pytest-xdist's workers the order is the same."""
    groups = {item: _group(PurePosixPath(item.path.relative_to(_TESTS))) for item in items}
    items.sort(key=lambda item: groups[item][0])
    for item, (_, name) in groups.items():
        item.add_marker(pytest.mark.xdist_group(name.replace("/", ".")))
