"""The closed lists of condition types and reasons."""

import re

import pytest

from shoal_api.conditions import ConditionType, Reason


@pytest.mark.parametrize("kind", [ConditionType, Reason])
def test_values_are_the_pascal_case_of_their_names(kind: type[ConditionType] | type[Reason]) -> None:
    """No two members share a value (the second would silently be the first), and each fits the CRDs' pattern."""
    assert len(kind.__members__) == len({member.value for member in kind})
    for name, member in kind.__members__.items():
        assert re.fullmatch(r"[A-Z][A-Za-z0-9]*", member.value)
        assert member.value.lower() == name.replace("_", "").lower()
