"""Names of what the operator makes: valid, within limits, different for what is different, stable."""

import re

from hypothesis import given
from hypothesis import strategies as st

from shoal_operator.domain import naming

LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
services = st.from_regex(r"\A[a-z]([-a-z0-9]{0,61}[a-z0-9])?\Z")
revisions = st.from_regex(r"\A[0-9a-f]{8}\Z")


@given(services, revisions, st.integers(0, 10**6))
def test_replica_names_are_labels_within_limits(service: str, revision: str, number: int) -> None:
    name = naming.replica_name(service, revision, number)
    assert len(name) <= naming.NAME_CHARS_MAX
    assert LABEL.fullmatch(name)
    assert LABEL.fullmatch(naming.pod_name(name))
    assert name.endswith(f"-{revision}-{number}")
    assert name == naming.replica_name(service, revision, number)


@given(services, services, revisions, st.integers(0, 999), st.integers(0, 999))
def test_different_replicas_have_different_names(one: str, other: str, revision: str, a: int, b: int) -> None:
    if (one, a) != (other, b):
        assert naming.replica_name(one, revision, a) != naming.replica_name(other, revision, b)


@given(services)
def test_other_names_are_labels_within_limits(name: str) -> None:
    for made in (naming.router_name(name), naming.budget_name(name), naming.revision_name(name, "0" * 8)):
        assert len(made) <= 63
        assert LABEL.fullmatch(made)
