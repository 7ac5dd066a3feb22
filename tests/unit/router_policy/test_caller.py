"""Who asks and how long they wait: from headers, whatever they hold."""

import pytest

from shoal_router.index import caller


def test_callers_are_told_apart_and_their_credentials_not_kept() -> None:
    one, two = ({"authorization": f"Bearer {word}"} for word in ("secret-a", "secret-b"))
    assert caller.tenant(one) != caller.tenant(two) != ""
    assert caller.tenant(one) == caller.tenant(dict(one))
    assert "secret" not in caller.tenant(one)
    assert caller.tenant({"x-api-key": "k"}) != ""
    assert caller.tenant({}) == ""


@pytest.mark.parametrize(
    ("text", "want"),
    [("600", 600.0), ("0.5", 0.5), ("0", None), ("-3", None), ("nan", None), ("inf", None), ("soon", None), ("", None)],
)
def test_timeout_is_taken_where_it_makes_sense(text: str, want: float | None) -> None:
    assert caller.timeout_s({caller.TIMEOUT_HEADER: text}) == want
    assert caller.timeout_s({}) is None
