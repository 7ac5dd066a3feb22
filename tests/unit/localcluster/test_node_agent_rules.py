"""The node agent's pure rules: back-off, probe thresholds, expansion, fields, image map, nodes."""

from decimal import Decimal
from typing import Any

import pytest

from shoal_local import images, nodes
from shoal_local.agent import expansion, fields, probe_rules, quantities
from shoal_local.agent.addresses import PodAddresses, prefixes_by_preference
from shoal_local.agent.backoff import Backoff, BackoffPolicy
from shoal_local.agent.differences import differences
from shoal_local.agent.fields import Place
from shoal_local.agent.probe_rules import Verdict
from shoal_local.agent.references import ConfigError
from shoal_local.yamlfile import InvalidFileError

PLACE = Place("127.70.1.1", "127.70.0.1", {"cpu": "8", "memory": "32Gi"})
POD: dict[str, Any] = {
    "metadata": {
        "name": "web-0",
        "namespace": "shop",
        "uid": "u1",
        "labels": {"app": "web", "quote": 'say "x"'},
        "annotations": {"a.b/c": "d"},
    },
    "spec": {
        "nodeName": "cpu-0",
        "serviceAccountName": "clerk",
        "containers": [{"name": "main", "resources": {"limits": {"cpu": "1500m"}, "requests": {"memory": "100Mi"}}}],
    },
}


def test_backoff_doubles_from_the_second_failure_to_the_limit() -> None:
    policy = BackoffPolicy()
    state, delays = Backoff(), []
    for _ in range(8):
        state = state.after_run(policy, ran_s=1.0)
        delays.append(state.delay_s(policy))
    assert delays == [0, 10, 20, 40, 80, 160, 300, 300]


def test_backoff_forgets_after_a_long_run() -> None:
    policy = BackoffPolicy(base_s=1.0, max_s=4.0)
    state = Backoff(9).after_run(policy, ran_s=8.0)
    assert state.delay_s(policy) == 0.0


def test_probe_defaults_and_thresholds() -> None:
    spec = probe_rules.parse_probe(
        "readiness", {"tcpSocket": {"port": 1}, "failureThreshold": 2, "successThreshold": 2}
    )
    assert spec is not None
    assert (spec.period_s, spec.timeout_s, spec.initial_delay_s) == (10.0, 1.0, 0.0)
    verdict, seen = Verdict(), []
    for result in (True, True, False, True, False, False, True):
        verdict = verdict.after(spec, result)
        seen.append(verdict.passed)
    assert seen == [None, True, True, True, True, False, False]


@pytest.mark.parametrize("probe", [None, {}, {"grpc": {"port": 1}}])
def test_probe_that_cannot_be_run_is_none(probe: dict[str, Any] | None) -> None:
    assert probe_rules.parse_probe("liveness", probe) is None


def test_port_names_resolve() -> None:
    ports = [{"name": "http", "containerPort": 8000}]
    assert [probe_rules.resolve_port(port, ports) for port in (1, "2", "http")] == [1, 2, 8000]
    with pytest.raises(ValueError, match="no container port is called 'grpc'"):
        probe_rules.resolve_port("grpc", ports)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("$(A)", "1"),
        ("x$(A)$(B)", "x1$(B)"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$(", "$("),
        ("$A", "$A"),
        ("", ""),
    ],
)
def test_expansion(text: str, want: str) -> None:
    assert expansion.expand(text, {"A": "1"}) == want


@pytest.mark.parametrize(
    ("text", "want"),
    [("1500m", "1.5"), ("16Gi", str(16 * 1024**3)), ("2k", "2000"), (3, "3"), ("1e3", "1000"), ("0.5", "0.5")],
)
def test_quantities(text: str | int, want: str) -> None:
    assert quantities.parse_quantity(text) == Decimal(want)


def test_bad_quantity_is_refused() -> None:
    with pytest.raises(ValueError, match="'many' is not a quantity"):
        quantities.parse_quantity("many")


@pytest.mark.parametrize(
    ("path", "want"),
    [
        ("metadata.name", "web-0"),
        ("metadata.labels['app']", "web"),
        ("metadata.annotations['a.b/c']", "d"),
        ("metadata.labels", 'app="web"\nquote="say \\"x\\""'),
        ("spec.serviceAccountName", "clerk"),
        ("status.podIP", "127.70.1.1"),
        ("status.hostIP", "127.70.0.1"),
    ],
)
def test_field_values(path: str, want: str) -> None:
    assert fields.field_value(POD, path, PLACE) == want


def test_unknown_field_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"unsupported fieldPath: status\.phase"):
        fields.field_value(POD, "status.phase", PLACE)


@pytest.mark.parametrize(
    ("reference", "want"),
    [
        ({"resource": "limits.cpu"}, "2"),
        ({"resource": "limits.cpu", "divisor": "1m"}, "1500"),
        ({"resource": "requests.memory", "divisor": "1Mi"}, "100"),
        ({"resource": "limits.memory", "divisor": "1Gi"}, "32"),  # no limit of its own: the node's
    ],
)
def test_resource_values(reference: dict[str, Any], want: str) -> None:
    assert fields.resource_value(POD, reference, "main", PLACE) == want


@pytest.mark.parametrize(
    ("reference", "want"),
    [
        ("python:3.11", "python"),
        ("host:5000/a/python@sha256:0", "host:5000/a/python"),
        ("host:5000/a/python:1@sha256:0", "host:5000/a/python"),
    ],
)
def test_repository_of_a_reference(reference: str, want: str) -> None:
    assert images.repository_of(reference) == want


def test_the_longest_entry_stands_for_an_image() -> None:
    entries = images.parse_images("images: [{image: engine}, {image: shoal/engine, entrypoint: [run]}]", "test")
    assert images.find_image(entries, "ghcr.io/x/shoal/engine:1").entrypoint == ("run",)
    assert images.find_image(entries, "y/engine").entrypoint == ()
    with pytest.raises(images.ImageMissingError, match=r"no environment stands for image 'y/bigengine'; known: engine"):
        images.find_image(entries, "y/bigengine")


def test_command_and_args_against_entrypoint() -> None:
    entry = images.Environment(image="x", entrypoint=("run",), command=("--all",))
    assert images.argv_of(entry, [], []) == ["run", "--all"]
    assert images.argv_of(entry, [], ["--one"]) == ["run", "--one"]
    assert images.argv_of(entry, ["other"], []) == ["other"]
    assert images.argv_of(entry, ["other"], ["--one"]) == ["other", "--one"]


def test_image_map_survives_writing_and_reading() -> None:
    entries = [images.Environment(image="x", path=("/a",), pythonPath=("/b",), env={"C": "d"}, keep=("/e",))]
    assert images.parse_images(images.render_images(entries), "test") == tuple(entries)


def test_image_map_error_names_the_field() -> None:
    with pytest.raises(InvalidFileError, match=r"^test: images\.0\.place: Extra inputs"):
        images.parse_images("images: [{image: x, place: [/a]}]", "test")


def test_default_nodes_are_a_fleet() -> None:
    specs = nodes.read_nodes(None)
    assert [spec.name for spec in specs] == ["cpu-0", "cpu-1", "b200-0", "b200-1", "b300-0", "h200-0"]
    node = nodes.render_node(specs[2])
    assert node["metadata"]["labels"]["nvidia.com/gpu.product"] == "NVIDIA-B200"
    assert node["spec"]["taints"] == [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]
    assert nodes.render_capacity(specs[2])["nvidia.com/gpu"] == "8"
    assert nodes.render_node(specs[0])["spec"]["taints"] == []


def test_nodes_file_errors_are_readable() -> None:
    with pytest.raises(InvalidFileError, match=r"^test: nodes\.0\.gpus: Extra inputs"):
        nodes.parse_nodes("nodes: [{name: a, gpus: 8}]", "test")
    with pytest.raises(InvalidFileError, match="two nodes are called a-0"):
        nodes.parse_nodes("nodes: [{name: a, count: 2}, {name: a-0}]", "test")


def test_pod_addresses_are_not_given_twice_and_wanted_ones_are_kept() -> None:
    pool = PodAddresses(70)
    first, second = pool.take(), pool.take()
    assert (first, second) == ("127.70.1.1", "127.70.1.2")
    pool.release(first)
    assert pool.take() == "127.70.1.3"
    assert pool.take(first) == first
    assert pool.take(second) != second
    assert pool.take("127.71.1.9").startswith("127.70.")
    assert pool.take("10.0.0.1").startswith("127.70.")


def test_every_prefix_is_tried_once_in_a_stable_order() -> None:
    order = prefixes_by_preference("/some/folder")
    assert sorted(order) == list(range(64, 250))
    assert order == prefixes_by_preference("/some/folder")


def test_differences_name_what_is_not_given() -> None:
    asked = {
        "hostPID": True,
        "containers": [{"name": "a", "securityContext": {"privileged": True}, "volumeMounts": [{"name": "v"}]}],
    }
    assert [text.split(" ")[0] for text in differences({"spec": asked}, True)] == ["hostPID", "privileged"]
    assert any("SHOAL_VOLUME" in text for text in differences({"spec": asked}, False))
    assert differences({"spec": {"containers": [{"name": "a"}]}}, True) == []
