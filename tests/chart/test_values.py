"""Values: linted, described by a schema that refuses the rest, and each one with an effect."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from shoal_testing import chart
from shoal_testing.apiserver import Tool
from shoal_testing.chart import CHART, CI_VALUES

pytestmark = pytest.mark.chart

REFUSED = {
    "unknown value": ("operator.replica=3", "replica"),
    "unknown value at the top": ("replicas=3", "replicas"),
    "wrong type": ("operator.replicas=two", "/operator/replicas"),
    "log level": ("operator.logLevel=TRACE", "/operator/logLevel"),
    "digest": ("operator.image.digest=sha256:abc", "/operator/image/digest"),
    "tag with a name": ("image.tag=shoal:1", "/image/tag"),
    "name": ("router.default.name=Default", "/router/default/name"),
    "pull policy": ("image.pullPolicy=Sometimes", "/image/pullPolicy"),
    "interval": ("metrics.podMonitor.interval=15", "/metrics/podMonitor/interval"),
}


@pytest.mark.parametrize("values", [None, *CI_VALUES], ids=lambda path: path.name if path else "defaults")
def test_lint(helm: Tool, values: Path | None) -> None:
    arguments = ("--values", values) if values else ()
    done = helm("lint", CHART, "--strict", *arguments)
    assert "0 chart(s) failed" in done.stdout
    assert "[WARNING]" not in done.stdout


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_schema_refuses(helm: Tool, case: tuple[str, str]) -> None:
    setting, want = case
    done = helm("template", "shoal", CHART, "--set", setting, check=False)
    assert done.returncode != 0
    assert "values don't meet the specifications of the schema" in done.stderr
    assert want in done.stderr


def _keys(node: Any, prefix: str) -> set[str]:
    if not isinstance(node, dict):
        return set()
    return {f"{prefix}{key}" for key in node} | {
        deeper for key, child in node.items() for deeper in _keys(child, f"{prefix}{key}.")
    }


def _properties(schema: dict[str, Any], prefix: str) -> set[str]:
    properties = schema.get("properties", {})
    return {f"{prefix}{key}" for key in properties} | {
        deeper for key, child in properties.items() for deeper in _properties(child, f"{prefix}{key}.")
    }


def test_schema_and_values_name_the_same_keys() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    described = _properties(schema, "") - {"global"}
    free = ("router.default.spec.", "operator.resources.")
    given = {key for key in _keys(values, "") if not key.startswith(free)}
    assert {key for key in described if not key.startswith(free)} == given


def _leaves(node: Any, path: tuple[str, ...]) -> list[tuple[str, ...]]:
    if isinstance(node, dict) and node and path[-1:] not in (("spec",), ("resources",)):
        return [leaf for key, child in node.items() for leaf in _leaves(child, (*path, key))]
    return [path]


def _at(node: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        node = node.get(key) if isinstance(node, dict) else None
    return node


def test_ci_values_try_every_value() -> None:
    """Each leaf of values.yaml differs from its default in some file of ci/, so that the renders below cover it."""
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    files = [yaml.safe_load(path.read_text()) for path in CI_VALUES]
    untried = [
        ".".join(path)
        for path in _leaves(defaults, ())
        if not any(_at(file, path) not in (None, _at(defaults, path)) for file in files)
    ]
    assert untried == []


@pytest.mark.parametrize(
    ("settings", "want"),
    [
        ((), "shoal/operator:0.1.0"),
        (("image.tag=1.2.3",), "shoal/operator:1.2.3"),
        (("image.registry=ghcr.io/acme",), "ghcr.io/acme/shoal/operator:0.1.0"),
        (("image.registry=ghcr.io/acme/", "operator.image.name=op"), "ghcr.io/acme/op:0.1.0"),
        ((f"operator.image.digest=sha256:{'0' * 64}", "image.tag=x"), f"shoal/operator@sha256:{'0' * 64}"),
    ],
)
def test_image(helm: Tool, settings: tuple[str, ...], want: str) -> None:
    objects = chart.rendered(helm, *(part for setting in settings for part in ("--set", setting)))
    container = chart.one(objects, "Deployment")["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == want
