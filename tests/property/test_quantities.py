"""Durations and quantities: the parsers agree with the patterns in the CRDs and with exact arithmetic."""

import math
import re
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal_api import quantities

UNITS_MS = {"h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
SUFFIXES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}

parts = st.lists(st.tuples(st.integers(0, 9999), st.sampled_from(sorted(UNITS_MS))), min_size=1, max_size=4)


@given(parts)
def test_duration_is_the_sum_of_its_parts(given_parts: list[tuple[int, str]]) -> None:
    text = "".join(f"{number}{unit}" for number, unit in given_parts)
    want_ms = sum(number * UNITS_MS[unit] for number, unit in given_parts)
    assert math.isclose(quantities.duration_s(text), want_ms / 1000, rel_tol=1e-12)


@given(st.text(alphabet="0123456789.hms -", max_size=8))
def test_duration_parser_takes_what_the_pattern_takes(text: str) -> None:
    if re.fullmatch(quantities.DURATION_PATTERN.removesuffix("$"), text):
        assert quantities.duration_s(text) >= 0
    else:
        with pytest.raises(ValueError, match="not a duration"):
            quantities.duration_s(text)


@given(st.integers(0, 10**6), st.sampled_from(sorted(SUFFIXES)))
def test_quantity_of_whole_numbers(number: int, suffix: str) -> None:
    assert quantities.quantity_bytes(f"{number}{suffix}") == number * SUFFIXES[suffix]


@given(st.decimals("0", "9999", places=3), st.sampled_from(sorted(SUFFIXES)))
def test_quantity_rounds_up(number: Decimal, suffix: str) -> None:
    exact = number * SUFFIXES[suffix]
    assert 0 <= quantities.quantity_bytes(f"{number}{suffix}") - exact < 1


@given(st.text(alphabet="0123456789.KMGikm e-", max_size=8))
def test_quantity_parser_takes_what_the_pattern_takes(text: str) -> None:
    if re.fullmatch(quantities.QUANTITY_PATTERN.removesuffix("$"), text):
        assert quantities.quantity(text) >= 0
    else:
        with pytest.raises(ValueError, match="not a Kubernetes quantity"):
            quantities.quantity(text)
