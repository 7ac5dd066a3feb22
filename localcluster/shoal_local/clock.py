"""Times as Kubernetes writes them."""

import datetime


def now() -> str:
    """This moment, in seconds."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def now_micro() -> str:
    """This moment, in microseconds, as Leases want it."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def seconds_since(written: str) -> float:
    """Age of a time that Kubernetes wrote."""
    then = datetime.datetime.fromisoformat(written)
    return (datetime.datetime.now(datetime.UTC) - then).total_seconds()
