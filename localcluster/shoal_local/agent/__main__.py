"""`python -m shoal_local.agent SETTINGS.json`: the node agent's process. Started by the supervisor and by tests."""

import asyncio
import json
import logging
import os
import signal
import sys
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import uvloop

from shoal_local import nodes
from shoal_local.agent import addresses, leftovers, process
from shoal_local.agent.backoff import BackoffPolicy
from shoal_local.agent.balancer import Balancer
from shoal_local.agent.claims import ClaimProvisioner
from shoal_local.agent.context import Abilities, Context, NodePlace
from shoal_local.agent.events import Recorder
from shoal_local.agent.keeper import NodeKeeper
from shoal_local.agent.kubelet import KubeletServer
from shoal_local.agent.manager import PodManager
from shoal_local.agent.prober import probe_session
from shoal_local.agent.settings import Settings
from shoal_local.identity import cluster_id_of
from shoal_local.kube import Kube
from shoal_local.nodes import NodeSpec
from shoal_local.pki import Pki

log = logging.getLogger("shoal_local.agent")

_TRIAL_DEADLINE_S: Final = 20.0


async def try_private_root(folder: Path) -> Abilities:
    """Starts a trivial container with a root of its own to see whether this machine allows it."""
    trial = folder / "trial"
    trial.mkdir(parents=True, exist_ok=True)
    mounts = [{"source": str(trial), "target": "/shoal-trial/inner", "read_only": True}]
    root = {"hostname": "trial", "mounts": mounts, "read_only": True}
    order = process.Order(["/bin/sh", "-c", "test -d /shoal-trial/inner"], {"PATH": "/usr/bin:/bin"}, "/", root)
    try:
        started = await process.start(order, trial / "log")
        ended = await asyncio.wait_for(started.wait(), _TRIAL_DEADLINE_S)
    except (process.StartError, TimeoutError) as error:
        return Abilities(False, str(error) or type(error).__name__)
    return Abilities(ended.code == 0, "" if ended.code == 0 else f"the trial ended with {ended.code}")


async def serve(settings: Settings) -> None:
    """Runs the agent until SIGTERM."""
    cluster_id = cluster_id_of(settings.folder)
    killed = leftovers.kill_cluster_processes(cluster_id)
    if killed:
        log.warning("Killed %s processes that an agent before this one had left", killed)
    specs = nodes.read_nodes(settings.nodes)
    prefix, port, first_socket = addresses.claim_prefix(str(settings.folder.resolve()), settings.kubelet_port)
    settings = settings.model_copy(update={"kubelet_port": port})
    places = {
        spec.name: NodePlace(addresses.node_address(prefix, index), nodes.render_capacity(spec))
        for index, spec in enumerate(specs)
    }
    abilities = await try_private_root(settings.folder)
    if not abilities.private_root:
        log.warning("Containers see the machine's own root, volumes are not at their paths: %s", abilities.reason)
    async with Kube(settings.kubeconfig) as kube, probe_session() as session:
        server = urlsplit(kube.server)
        context = Context(
            settings=settings,
            kube=kube,
            recorder=Recorder(kube),
            session=session,
            nodes=places,
            addresses=addresses.PodAddresses(prefix),
            abilities=abilities,
            backoff=BackoffPolicy(settings.backoff_base_s, settings.backoff_max_s),
            cluster_id=cluster_id,
            api_host=server.hostname or "127.0.0.1",
            api_port=server.port or 443,
        )
        manager = PodManager(context)
        pki = Pki(settings.pki)
        kubelet_pair = pki.server(f"kubelet-{prefix}", "kubelet", [place.address for place in places.values()])
        kubelet = KubeletServer(manager, kubelet_pair, pki.authority("ca").certificate)
        others = [place.address for place in places.values()][1:]
        await kubelet.start(first_socket, others, settings.kubelet_port)
        try:
            await _run_all(context, manager, specs)
        finally:
            await kubelet.stop()


async def _run_all(context: Context, manager: PodManager, specs: list[NodeSpec]) -> None:
    settings = context.settings
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    keepers = [
        NodeKeeper(
            context.kube,
            spec,
            context.nodes[spec.name].address,
            settings.kubelet_port,
            settings.kubernetes_version,
            settings.lease_period_s,
        )
        for spec in specs
    ]
    parts = [
        context.recorder.run(),
        manager.run(),
        Balancer(context.kube, settings.balancer_ports).run(),
        ClaimProvisioner(context.kube, settings.folder / "claims").run(),
        *(keeper.run() for keeper in keepers),
    ]
    tasks = [asyncio.create_task(part) for part in parts]
    stopping = asyncio.create_task(stop.wait())
    ready = asyncio.create_task(_announce(keepers, context))
    try:
        await asyncio.wait([*tasks, stopping], return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done():  # none of them ends by itself: what ended has failed
                task.result()
    finally:
        stopping.cancel()
        ready.cancel()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, stopping, ready, return_exceptions=True)


async def _announce(keepers: list[NodeKeeper], context: Context) -> None:
    """Tells whoever started us that every node is registered, and what this machine does not allow."""
    for keeper in keepers:
        await keeper.registered.wait()
    said = {"pid": os.getpid(), "private_root": context.abilities.private_root, "reason": context.abilities.reason}
    await asyncio.to_thread(context.settings.ready_file.write_text, json.dumps(said))
    log.info("Node agent runs %s nodes", len(keepers))


def main() -> None:
    """Reads the settings file and serves."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    settings = Settings.model_validate_json(Path(sys.argv[1]).read_text())
    settings.folder.mkdir(parents=True, exist_ok=True)
    uvloop.run(serve(settings))


if __name__ == "__main__":
    main()
