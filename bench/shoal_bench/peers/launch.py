"""Starts a router in front of engines: Shoal or a peer, one process, pinned, with the policy asked for.

Settings are each router's own defaults, but for: logs of warnings only, no limit of concurrent requests where a
default would refuse streams that others take, and the metrics port, which must be free. `start` returns when the
router says that all engines are usable. Used by bench-router, bench-routing and bench-slicing.
"""

import json
import os
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from shoal_bench import processes
from shoal_bench.peers import install, interpreter, nginx

READY_DEADLINE_S: Final = 60.0
INTERPRETED: Final = "shoal-interpreted"
_HOST: Final = "127.0.0.1"

POLICIES: Final[Mapping[str, Mapping[str, str]]] = {
    "shoal": {"cache_aware": ""},
    "shoal-interpreted": {"cache_aware": ""},
    "sglang-router": {"cache_aware": "cache_aware", "round_robin": "round_robin"},
    "smg": {"cache_aware": "cache_aware", "round_robin": "round_robin", "least_loaded": "least_load"},
    "vllm-router": {
        "cache_aware": "cache_aware",
        "round_robin": "round_robin",
        "sticky_sessions": "sticky_least_loaded",
    },
    "nginx": {"round_robin": "", "least_loaded": "least_conn;"},
}
"""Router, our name of a policy, its own name of it. Shoal has one policy; nginx's least_conn counts connections."""


class UnsupportedError(Exception):
    """A router lacks a policy, or cannot stand in front of plain HTTP engines."""


def start(
    name: str,
    policy: str,
    engine_urls: Sequence[str],
    port: int,
    folder: Path,
    core: int | None = None,
    *,
    words: Sequence[str] = (),
    module: Sequence[str] = ("shoal_router",),
    router_folder: Path | None = None,
    service: Mapping[str, str] | None = None,
    programs: Path | None = None,
) -> processes.Process:
    """A running router that serves all `engine_urls`; the caller stops it. Raises NotReadyError, UnsupportedError, or
    InstallError. Its log is in `folder`. `words` are added to its command line; Shoal is run as `python -m <module>`,
    which may be something that sets its surroundings up first, from `router_folder`: by default as it ships, compiled,
    or for `shoal-interpreted` the sources themselves. `service`: more fields of the service in Shoal's route table.
    `programs`: a folder with the peers' programs, where they are not to be installed.
    """
    if name == "dynamo":
        raise UnsupportedError("dynamo's engines are workers on its own request plane; see peers.dynamo")
    own_name = POLICIES.get(name, {}).get(policy)
    if own_name is None:
        raise UnsupportedError(f"{name} has no policy {policy}")
    if name in install.OURS:
        sources = router_folder or (install.ROUTER_SOURCES if name == INTERPRETED else install.compiled_router())
        process = _shoal(name, engine_urls, port, folder, core, [*module], words, sources, service or {})
    elif name == "nginx":
        process = nginx.start(name, nginx.render_proxy(engine_urls, port, own_name), port, folder, core)
    else:
        process = _peer(name, own_name, engine_urls, port, folder, core, words, programs or install.ensure(name))
    try:
        _wait(process, len(engine_urls))
    except BaseException:
        process.stop()
        raise
    return process


def _wait(process: processes.Process, engines: int) -> None:
    if process.name in install.OURS:
        admin = process.facts["admin"]
        processes.wait_http(process, f"{admin}/readyz", READY_DEADLINE_S)
        _wait_routable(process, engines)
    elif process.name == "nginx":
        processes.wait_http(process, f"{process.url}/v1/models", READY_DEADLINE_S)
    else:
        processes.wait_http(process, f"{process.url}/readiness", READY_DEADLINE_S, f'"healthy_workers":{engines}')


def _wait_routable(process: processes.Process, engines: int) -> None:
    def usable(text: str) -> bool:
        replicas = json.loads(text)["services"][0]["replicas"]
        return [one["state"] for one in replicas] == ["Routable"] * engines

    processes.wait_http(process, f"{process.facts['admin']}/state", READY_DEADLINE_S, accept=usable)


def _shoal(
    name: str,
    engine_urls: Sequence[str],
    port: int,
    folder: Path,
    core: int | None,
    module: Sequence[str],
    words: Sequence[str],
    sources: Path,
    service: Mapping[str, str],
) -> processes.Process:
    bench = {"name": "bench", "served_name": served_name(engine_urls[0]), **service}
    table = {"generation": "1", "services": [bench]}
    replicas = [{"name": f"engine-{number}", "service": "bench", "url": url} for number, url in enumerate(engine_urls)]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "routes.json").write_text(json.dumps(table))
    (folder / "replicas.json").write_text(json.dumps({"replicas": replicas}))
    admin_port = processes.free_port()
    program = str(interpreter.chosen().program)
    argv = [program, "-m", *module, "--host", _HOST, "--port", str(port), "--admin-port", str(admin_port),
            "--routes", str(folder / "routes.json"), "--replicas", str(folder / "replicas.json"),
            "--listen-after-term-s", "0", *words]  # fmt: skip
    facts = {"admin": f"http://{_HOST}:{admin_port}"}
    path = os.pathsep.join(filter(None, (str(sources), os.environ.get("PYTHONPATH", ""))))
    url = f"http://{_HOST}:{port}"
    return processes.start(name, argv, folder, core=core, env={"PYTHONPATH": path}, url=url, facts=facts)


def _peer(
    name: str,
    own_name: str,
    engine_urls: Sequence[str],
    port: int,
    folder: Path,
    core: int | None,
    words: Sequence[str],
    programs: Path,
) -> processes.Process:
    argv = [str(programs / name), *_PEER_WORDS[name](), "--host", _HOST, "--port", str(port), "--policy", own_name,
            "--prometheus-host", _HOST, "--prometheus-port", str(processes.free_port()),
            "--worker-startup-check-interval", "1", *words, "--worker-urls", *engine_urls]  # fmt: skip
    return processes.start(name, argv, folder, core=core, url=f"http://{_HOST}:{port}")


_PEER_WORDS: Final[Mapping[str, Callable[[], list[str]]]] = {
    "sglang-router": lambda: ["launch", "--log-level", "warn"],
    "smg": lambda: ["launch", "--log-level", "warn", "--max-concurrent-requests", "0"],
    "vllm-router": lambda: ["--log-level", "warning"],
}


def served_name(engine_url: str) -> str:
    """The model that an engine says it serves."""
    with urllib.request.urlopen(f"{engine_url}/v1/models", timeout=5) as answer:
        return str(json.load(answer)["data"][0]["id"])
