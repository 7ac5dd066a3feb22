"""The chart as tests see it: where it is, and what helm renders from it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from shoal_testing.apiserver import Tool

CHECKOUT = Path(__file__).resolve().parents[3]
CHART = CHECKOUT / "charts" / "shoal"
CI_VALUES = sorted((CHART / "ci").glob("*-values.yaml"))

Object = dict[str, Any]


def rendered(helm: Tool, *arguments: str | Path, namespace: str = "shoal") -> list[Object]:
    """Every object of a release called `shoal`, without CRDs."""
    done = helm("template", "shoal", CHART, "--namespace", namespace, *arguments)
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def one(objects: Sequence[Object], kind: str, name: str | None = None) -> Object:
    """The only object of a kind (and name)."""
    found = [
        document
        for document in objects
        if document["kind"] == kind and (name is None or document["metadata"]["name"] == name)
    ]
    assert len(found) == 1, f"{len(found)} objects of kind {kind}"
    return found[0]
