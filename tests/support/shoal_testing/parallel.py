"""Who runs beside whom: tests of one group run in order in one process, and share what is dear to start.

A pytest plugin (tests/conftest.py names it). `make test` asks pytest-xdist for its processes; in one process the order
is the same. The scheduler is xdist's by scope, with the group as scope: its own `loadgroup` renames tests, which pytest
9.2 does not let it do.
"""

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

# Longest first, so that the many short files, which are a group each, fill the processes' ends.
_SHARED = (
    "tests/apiserver/reconcile",
    "tests/e2e",
    "tests/apiserver/test_local_cluster_pods.py",
    "tests/chart",
    "tests/wire/test_router_failures.py",
    "tests/apiserver/outage",
    "tests/apiserver/test_local_command.py",
    "tests/apiserver",
)
_THEN = ("tests/wire", "tests/golden")


def group_of(nodeid: str) -> tuple[int, str]:
    """Place in the order, and name."""
    path = PurePosixPath(nodeid.partition("::")[0])
    for place, prefix in enumerate((*_SHARED, *_THEN)):
        if path.is_relative_to(prefix):
            return place, prefix if prefix in _SHARED else str(path)
    return len(_SHARED) + len(_THEN), str(path)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sorts by group; within one the order stays."""
    items.sort(key=lambda item: group_of(item.nodeid)[0])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """At a group's end its control planes and operators stop, so that they take no time from those that come."""
    yield
    if nextitem is not None and group_of(nextitem.nodeid) != group_of(item.nodeid):
        item.session._setupstate.teardown_exact(None)


class _ByGroup(LoadScopeScheduling):
    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)[1]


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    """For whatever `--dist` says: no other way of sharing tests out fits these."""
    return _ByGroup(config, log)
