"""The cached build's decisions and the cluster's certificates."""

import concurrent.futures
import ssl
import stat
import threading
from pathlib import Path

import pytest
from cryptography import x509

from shoal_local import binaries, child, cluster, default_images, gobuild, ports
from shoal_local.components import APISERVER_NAMES, Ports, etcd_argv
from shoal_local.gobuild import Estimate
from shoal_local.kubeconfig import render_kubeconfig
from shoal_local.pki import Pki


def test_estimate_uses_the_measured_rate_once_there_is_one() -> None:
    megabytes = 100 * 10**6
    assert Estimate(0, 3000, 0, megabytes, 0.0, 2).remaining_s() == pytest.approx(100 * 6.9 / 2 + 10)
    assert Estimate(1500, 3000, megabytes // 2, megabytes, 172.5, 2).remaining_s() == pytest.approx(50 * 6.9 / 2 + 10)
    slower = Estimate(2900, 3000, megabytes * 9 // 10, megabytes, 900.0, 2)
    assert slower.remaining_s() == pytest.approx(0.9 * 100 + 0.1 * 34.5 + 10)
    assert "2900 of 3000 packages (90 %), about 1 min 43 s left" in slower.line()
    assert "linking" in Estimate(3000, 3000, megabytes, megabytes, 600.0, 2).line()


def test_two_builds_at_once_are_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(binaries.ASSETS_VARIABLE, raising=False)
    monkeypatch.setattr(binaries, "_check_runs", lambda _folder: None)
    waiting, builds = threading.Event(), list[Path]()

    def build(_sources: Path, target: Path, _progress: gobuild.Progress) -> None:
        builds.append(target)
        target.touch(mode=0o755)
        assert waiting.wait(20)

    def progress(line: str) -> None:
        if "waiting for it" in line:
            waiting.set()

    monkeypatch.setattr(gobuild, "build", build)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        found = [future.result(20) for future in [pool.submit(binaries.ensure, progress) for _ in range(2)]]
    assert found[0] == found[1]
    assert len(builds) == 1
    assert binaries.missing_programs(found[0]) == []


@pytest.mark.parametrize(
    ("text", "want"),
    [("go version go1.26.8 linux/amd64", (1, 26)), ("go version go1.9 linux/amd64", (1, 9)), ("devel", None)],
)
def test_go_version(text: str, want: tuple[int, int] | None) -> None:
    assert gobuild.parse_go_version(text) == want


def test_missing_go_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(gobuild.BuildError, match=r"`go` is not on PATH. Go 1.26 or newer .* https://go.dev/dl/"):
        gobuild.check_go(tmp_path)


def test_old_go_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "go"
    program.write_text("#!/bin/sh\necho go version go1.25.3 linux/amd64\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(gobuild.BuildError, match=r"Go 1.25 is too old"):
        gobuild.check_go(tmp_path)


def programs(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).touch(mode=0o755)
    return folder


def test_assets_are_used_only_when_complete(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    said: list[str] = []
    partial = programs(tmp_path / "partial", "etcd", "kubectl")
    monkeypatch.setenv(binaries.ASSETS_VARIABLE, str(partial))
    assert binaries.find(said.append) is None
    assert "it lacks kube-apiserver" in said[0]
    whole = programs(tmp_path / "whole", *binaries.PROGRAMS)
    monkeypatch.setenv(binaries.ASSETS_VARIABLE, str(whole))
    assert binaries.find() == whole


def test_key_follows_every_source(tmp_path: Path) -> None:
    (tmp_path / "cmd").mkdir()
    for name in ("go.mod", "go.sum", "cmd/main.go"):
        (tmp_path / name).write_text("a")
    keys = {binaries.key_of(tmp_path)}
    for name in ("go.mod", "go.sum", "cmd/main.go"):
        (tmp_path / name).write_text("b")
        keys.add(binaries.key_of(tmp_path))
    assert len(keys) == 4


def test_failed_build_publishes_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(binaries.ASSETS_VARIABLE, raising=False)

    def fail(_sources: Path, target: Path, _progress: gobuild.Progress) -> None:
        target.write_text("half")
        raise gobuild.BuildError("no luck")

    monkeypatch.setattr(gobuild, "build", fail)
    with pytest.raises(gobuild.BuildError, match="no luck"):
        binaries.ensure()
    assert [path.name for path in binaries.cache_root().iterdir()] == [".lock"]


def test_certificates_are_made_once_and_verify(tmp_path: Path) -> None:
    pki = Pki(tmp_path / "pki")
    server = pki.server("kube-apiserver", "kube-apiserver", APISERVER_NAMES)
    node = pki.client("node", "system:node:a", "system:nodes")
    before = server.certificate.read_bytes()
    assert pki.server("kube-apiserver", "kube-apiserver", APISERVER_NAMES).certificate.read_bytes() == before
    certificate = x509.load_pem_x509_certificate(before)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "127.0.0.1" in [str(each) for each in names.get_values_for_type(x509.IPAddress)]
    subject = x509.load_pem_x509_certificate(node.certificate.read_bytes()).subject
    assert subject.rfc4514_string() == "CN=system:node:a,O=system:nodes"
    assert stat.S_IMODE(node.key.stat().st_mode) == 0o600
    authority = x509.load_pem_x509_certificate(pki.authority("ca").certificate.read_bytes())
    certificate.verify_directly_issued_by(authority)
    context = ssl.create_default_context(cafile=str(pki.authority("ca").certificate))
    context.load_cert_chain(node.certificate, node.key)
    rendered = render_kubeconfig("https://127.0.0.1:1", pki.authority("ca").certificate, node, "node")
    assert rendered["users"][0]["name"] == "node"


def test_ports_are_free_and_different() -> None:
    picked = ports.pick_ports(20)
    assert len(set(picked)) == 20
    assert all(ports.port_free(port) for port in picked)


def test_etcd_listens_on_loopback_only() -> None:
    argv = etcd_argv(Path("/bin/etcd"), Ports(1, 2, 3, 4, 5), _files())
    assert all("127.0.0.1" in each for each in argv if "url" in each)


def _files() -> object:
    class Files:
        data = Path("/data")

    return Files()


def test_default_image_map_names_every_image_of_the_project() -> None:
    entries = default_images.default_images("sim", {"SHOAL_SIM_SPEEDUP": "5"}, None)
    by_image = {entry.image: entry for entry in entries}
    assert set(by_image) == {"shoal/operator", "shoal/router", *default_images.ENGINE_IMAGES}
    assert by_image["lmsysorg/sglang"].env["SHOAL_SIM_SPEEDUP"] == "5"
    assert by_image["lmsysorg/sglang"].python_path[0].endswith("simulator/sglang_shim")


def test_cpu_engine_needs_a_prepared_folder(tmp_path: Path) -> None:
    with pytest.raises(default_images.EngineEnvironmentError, match="need the folder"):
        default_images.default_images("sglang-cpu", {}, None)
    with pytest.raises(default_images.EngineEnvironmentError, match="venv/bin/python is missing"):
        default_images.default_images("sglang-cpu", {}, tmp_path)
    for name in ("venv/bin", "site/sglang", "shim"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "venv/bin/python").touch()
    entries = {each.image: each for each in default_images.default_images("sglang-cpu", {}, tmp_path)}
    assert entries["lmsysorg/sglang"].python_path == (str(tmp_path / "shim"), str(tmp_path / "site"))
    assert "SHOAL_SIM_SPEEDUP" not in entries["lmsysorg/sglang"].env


def test_own_images_replace_the_default_ones(tmp_path: Path) -> None:
    more = tmp_path / "images.yaml"
    more.write_text("images: [{image: shoal/router, path: [/mine]}]")
    settings = cluster.ClusterSettings(binaries=tmp_path, images=more, profile="kimi", speedup=2.5)
    text = cluster.render_image_map(settings)
    assert text.count("shoal/router") == 1
    assert "/mine" in text
    assert "SHOAL_SIM_SPEEDUP: '2.5'" in text
    assert "SHOAL_SIM_PROFILE: kimi" in text


def test_state_of_a_dead_supervisor_reads_as_failed(tmp_path: Path) -> None:
    cluster.write_state(tmp_path, cluster.State("running", supervisor=2**22 - 1, started=1.0))
    state = cluster.read_state(tmp_path)
    assert state is not None
    assert state.phase == "failed"


def test_component_that_dies_is_reported_with_the_end_of_its_log(tmp_path: Path) -> None:
    program = child.Child("doomed", ["sh", "-c", "echo last words; exit 7"], tmp_path / "doomed.log")
    program.start()
    try:
        while program.failure() is None:
            assert program.pid is not None or program.failure() is not None
        assert "doomed ended with exit code 7" in (program.failure() or "")
        assert "last words" in (program.failure() or "")
    finally:
        program.stop()
