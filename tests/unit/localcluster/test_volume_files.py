"""Volumes made of files, size limits, and what is left when a Pod goes."""

from pathlib import Path
from typing import Any

import pytest

from shoal_local.agent import files, projection
from shoal_local.agent.fields import Place
from shoal_local.agent.kubelet import tail_offset
from shoal_local.agent.projection import File, Sources, Tokens
from shoal_local.agent.references import ConfigError, References
from shoal_local.agent.setup import hosts_text
from shoal_local.agent.volumes import PodVolumes
from shoal_local.kube import Kube

POD: dict[str, Any] = {
    "metadata": {"name": "p", "namespace": "n", "uid": "u", "labels": {"app": "x"}},
    "spec": {"containers": [{"name": "main"}]},
}
PLACE = Place("127.70.1.1", "127.70.0.1", {})


class FixedReferences(References):
    """References whose objects are given: `_fetch` is the only part that does I/O."""

    def __init__(self, **objects: dict[str, bytes]) -> None:
        super().__init__(None, "n")  # type: ignore[arg-type]
        self._objects = objects

    async def _fetch(self, kind: str, name: str) -> dict[str, bytes] | None:
        return self._objects.get(name)


def sources(**objects: dict[str, bytes]) -> Sources:
    return Sources(POD, PLACE, FixedReferences(**objects), Tokens(None, POD))  # type: ignore[arg-type]


async def test_config_map_items_choose_paths_and_modes() -> None:
    volume = {"name": "v", "configMap": {"name": "c", "items": [{"key": "a", "path": "d/e", "mode": 0o400}]}}
    assert await projection.collect(volume, sources(c={"a": b"1", "b": b"2"})) == {"d/e": File(b"1", 0o400)}


async def test_missing_object_or_key_is_an_error_unless_optional() -> None:
    volume: dict[str, Any] = {"name": "v", "secret": {"secretName": "s"}}
    with pytest.raises(ConfigError, match="secret 's' not found"):
        await projection.collect(volume, sources())
    volume["secret"]["optional"] = True
    assert await projection.collect(volume, sources()) == {}
    keyed = {"name": "v", "configMap": {"name": "c", "items": [{"key": "z", "path": "z"}]}}
    with pytest.raises(ConfigError, match="non-existent configMap key: c/z"):
        await projection.collect(keyed, sources(c={}))


async def test_projected_sources_are_merged() -> None:
    labels = {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}
    volume = {"name": "v", "projected": {"sources": [{"configMap": {"name": "c"}}, {"downwardAPI": labels}]}}
    found = await projection.collect(volume, sources(c={"a": b"1"}))
    assert {path: file.content for path, file in found.items()} == {"a": b"1", "labels": b'app="x"'}


def test_payload_changes_in_one_step_and_drops_what_went(tmp_path: Path) -> None:
    assert projection.write_payload(tmp_path, {"a": File(b"1", 0o644), "d/b": File(b"2", 0o600)})
    first = (tmp_path / "..data").resolve()
    assert (tmp_path / "d" / "b").read_bytes() == b"2"
    assert not projection.write_payload(tmp_path, {"a": File(b"1", 0o644), "d/b": File(b"2", 0o600)})
    assert projection.write_payload(tmp_path, {"a": File(b"new", 0o644)})
    assert (tmp_path / "a").read_bytes() == b"new"
    assert sorted(each.name for each in tmp_path.iterdir() if not each.name.startswith("..")) == ["a"]
    assert not first.exists()


def test_payload_path_must_stay_inside(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="invalid path"):
        projection.write_payload(tmp_path / "v", {"../x": File(b"", 0o644)})


async def test_empty_dir_over_its_limit_is_found(tmp_path: Path) -> None:
    pod = {**POD, "spec": {**POD["spec"], "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "64Ki"}}]}}
    volumes = PodVolumes(None, pod, tmp_path / "own", tmp_path / "memory", PLACE)  # type: ignore[arg-type]
    await volumes.prepare()
    assert volumes.exceeded() is None
    (tmp_path / "own" / "v" / "big").write_bytes(b"x" * 100_000)
    found = volumes.exceeded()
    assert found is not None
    assert (found.volume, found.limit) == ("v", "64Ki")
    volumes.remove()
    assert not (tmp_path / "own").exists()


async def test_unknown_volume_and_escaping_sub_path_are_refused(tmp_path: Path, unused_kube: Kube) -> None:
    pod = {**POD, "spec": {**POD["spec"], "volumes": [{"name": "v", "nfs": {}}]}}
    with pytest.raises(ConfigError, match="type nfs is not available"):
        await PodVolumes(unused_kube, pod, tmp_path, tmp_path, PLACE).prepare()
    pod = {**POD, "spec": {**POD["spec"], "volumes": [{"name": "v", "emptyDir": {}}]}}
    volumes = PodVolumes(unused_kube, pod, tmp_path, tmp_path, PLACE)
    await volumes.prepare()
    with pytest.raises(ConfigError, match="must stay inside"):
        volumes.mounts({"volumeMounts": [{"name": "v", "mountPath": "/x", "subPath": "../y"}]}, {})
    with pytest.raises(ConfigError, match="not in the Pod"):
        volumes.mounts({"volumeMounts": [{"name": "w", "mountPath": "/x"}]}, {})


@pytest.fixture
def unused_kube() -> Kube:
    """emptyDirs need no API."""
    return None  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("content", "lines", "want"),
    [
        (b"a\nb\nc\n", 2, b"b\nc\n"),
        (b"a\nb\nc", 2, b"b\nc"),
        (b"a\nb\n", 9, b"a\nb\n"),
        (b"a\n", 0, b""),
        (b"", 3, b""),
        (b"\n\n\n", 1, b"\n"),
    ],
)
def test_tail_of_a_log(tmp_path: Path, content: bytes, lines: int, want: bytes) -> None:
    path = tmp_path / "log"
    path.write_bytes(content)
    assert content[tail_offset(path, lines) :] == want


def test_termination_message_falls_back_to_the_log_where_asked(tmp_path: Path) -> None:
    written, log = tmp_path / "message", tmp_path / "log"
    log.write_text("one\ntwo\n")
    written.write_text("")
    assert files.termination_message(written, log, fallback=False) == ""
    assert files.termination_message(written, log, fallback=True) == "one\ntwo"
    written.write_text("said")
    assert files.termination_message(written, log, fallback=True) == "said"
    assert written.read_text() == ""


def test_last_logs_of_a_gone_pod_are_kept(tmp_path: Path) -> None:
    folder = files.container_folder(tmp_path / "ns_pod_0123456789", "main")
    for restarts, text in enumerate(("old", "new")):
        path = files.log_path(folder, restarts)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    files.keep_logs_of_gone_pod(tmp_path / "ns_pod_0123456789", tmp_path / "kept")
    assert (tmp_path / "kept" / "ns_pod_main_01234567.log").read_text() == "new"


def test_hosts_file_has_the_pods_names() -> None:
    pod = {
        **POD,
        "spec": {"subdomain": "web", "hostname": "web-0", "hostAliases": [{"ip": "1.2.3.4", "hostnames": ["x"]}]},
    }
    text = hosts_text(pod, "127.70.1.1")
    assert "127.70.1.1\tweb-0.web.n.svc.cluster.local web-0\n" in text
    assert text.endswith("1.2.3.4\tx\n")
