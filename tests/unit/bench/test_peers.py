"""Peers: locks that pin and hash, nginx's configuration, and what `start` refuses."""

from contextlib import nullcontext
from pathlib import Path

import pytest

from shoal_bench.peers import dynamo, install, launch, nginx
from shoal_bench.routing import fastclock


@pytest.mark.parametrize("name", install.PACKAGES)
def test_lock_pins_the_peer_with_hashes_and_no_addresses(name: str) -> None:
    text = (install.LOCKS / f"{name}.txt").read_text()

    pins = [line for line in text.splitlines() if "==" in line and not line.startswith((" ", "#"))]
    assert pins
    assert all(line.endswith("\\") for line in pins)
    assert "://" not in text
    assert install.version(name)[0].isdigit()


def test_every_lock_belongs_to_a_peer_that_can_be_started() -> None:
    assert {path.stem for path in install.LOCKS.glob("*.txt")} == set(install.PACKAGES)
    assert set(install.PACKAGES) - {dynamo.NAME} <= set(launch.POLICIES)


def test_only_plain_modules_are_told_of_another_clock(pytestconfig: pytest.Config) -> None:
    """A compiled router has its constants inside: changing them would have no effect, and nobody would know."""
    refused = pytest.raises(SystemExit) if pytestconfig.getoption("--router") == "compiled" else nullcontext()
    with refused:
        fastclock.keep_real(1.0)


def test_both_builds_of_ours_can_be_started_and_one_is_what_ships() -> None:
    assert install.OURS[0] == "shoal"
    assert launch.INTERPRETED in install.OURS
    assert set(install.OURS) <= set(launch.POLICIES)
    assert (install.ROUTER_SOURCES / "shoal_router" / "__main__.py").is_file()


def test_router_without_the_policy_is_not_started(tmp_path: Path) -> None:
    with pytest.raises(launch.UnsupportedError, match="least_loaded"):
        launch.start("sglang-router", "least_loaded", ["http://127.0.0.1:1"], 1, tmp_path)
    with pytest.raises(launch.UnsupportedError):
        launch.start("unheard-of", "cache_aware", ["http://127.0.0.1:1"], 1, tmp_path)
    with pytest.raises(launch.UnsupportedError, match="request plane"):
        launch.start("dynamo", "round_robin", ["http://127.0.0.1:1"], 1, tmp_path)


def test_nginx_passes_streams_on_and_keeps_connections() -> None:
    config = nginx.render_proxy(["http://127.0.0.1:1001", "http://127.0.0.1:1002"], 2000, "least_conn;")

    assert "server 127.0.0.1:1001;" in config
    assert "server 127.0.0.1:1002;" in config
    assert "least_conn;" in config
    assert "listen 127.0.0.1:2000" in config
    assert "proxy_buffering off;" in config
    assert config.count("{") == config.count("}")
