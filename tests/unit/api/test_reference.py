"""The field tables of docs/kinds."""

import pytest

from shoal_api import crd, reference

PAGE = """# Page
<!-- fields: spec -->
stale row
<!-- end of fields -->
between
<!-- fields: status -->
<!-- end of fields -->
"""
SCHEMAS = {kind.kind: crd.schema_of(kind) for kind in crd.KINDS}


def test_only_the_marked_places_change() -> None:
    page = reference.with_tables(PAGE, SCHEMAS["ModelService"])
    assert "stale row" not in page
    assert page.startswith("# Page\n<!-- fields: spec -->\n| field |")
    assert "\nbetween\n" in page
    assert reference.with_tables(page, SCHEMAS["ModelService"]) == page


def test_rows_give_path_type_and_default() -> None:
    page = reference.with_tables(PAGE, SCHEMAS["ModelService"])
    assert "| `model.source` | string | required |" in page
    assert "| `hardware[].gpusPerReplica` | integer 1..64 | required |" in page
    assert "| `routing.affinity` | `Auto` \\| `Off` | `Auto` |" in page
    assert "| `routing.slicing` | `Auto` \\| `Off` | `Auto` |" in page
    assert "| `routing.queue.maxBytes` | quantity | `1Gi` |" in page


def test_rules_are_listed() -> None:
    assert "- `rollout`: maxSurge and maxUnavailable cannot both be 0: nothing could move.\n" in reference.table(
        SCHEMAS["ModelService"]["properties"]["spec"]
    )


def test_a_page_without_its_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="marked places"):
        reference.with_tables("# Page\n", SCHEMAS["Router"])
