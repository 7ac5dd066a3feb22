"""The demo's order of events: cluster, chart, ModelService, load, a kill, double load, scale-out, scale-in.

Decides when each step is over and what is told about it; how things are done is in the modules beside it, and whether
it all was a success is `result.judge`'s to say. Every wait has a deadline.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import aiohttp

from shoal_api import keys
from shoal_cli.demo import cluster, install, picture, result, stage, watch
from shoal_cli.replay import client, drive, results, run, trace
from shoal_local import kube

SERVICE_APPEARS_S = 60.0
SERVICE_READY_S = 90.0
ROUTER_READY_S = 60.0
ENDPOINT_EVERY_S = 0.25
KILL_AFTER_S = 30.0
AFTER_KILL_S = 30.0
KILLED_BACK_S = 60.0
SCALE_OUT_S = 100.0
AFTER_SCALE_OUT_S = 40.0
SCALE_IN_S = 120.0
GRACE_S = 90.0
"""How long answers may take after the load has ended; what is still without an end then has hung."""


class DemoError(Exception):
    """The demo cannot go on; the message says what was waited for."""


@dataclass(frozen=True, slots=True)
class Options:
    checkout: Path
    folder: Path
    sessions: int = 20
    speedup: float = 4.0
    """Of think times and of the simulated engines alike."""
    think_max_s: float = 20.0
    seed: int = 0
    keep: bool = False


@dataclass(frozen=True, slots=True)
class Place:
    """The running demo: what is printed where it is kept."""

    kubeconfig: Path
    endpoint: str
    model: str


class Story:
    def __init__(self, options: Options, scene: stage.Stage, shown: picture.Picture) -> None:
        self._options = options
        self._stage = scene
        self._picture = shown
        self._marks = result.Marks()
        self._recorder: results.Recorder | None = None
        self._fleet: watch.Fleet | None = None
        self._load_s = 0.0
        self.place: Place | None = None

    def result(self) -> result.Result:
        """Of whatever has happened so far."""
        outcomes = self._recorder.outcomes if self._recorder else []
        points = self._fleet.points if self._fleet else []
        return result.make(outcomes, points, self._marks, self._stage.seconds(), self._load_s)

    async def play(self, local: cluster.Cluster) -> None:
        """From a started cluster to the scale-in. Raises DemoError, InstallError."""
        options = self._options
        tools = install.Tools(local.binaries, local.kubeconfig)
        with self._stage.phase("helm install"):
            self._stage.tell(await asyncio.to_thread(install.install_chart, tools, options.checkout / "charts/shoal"))
        async with kube.Kube(local.kubeconfig) as api, run.connections(1024) as http:
            fleet = self._fleet = watch.Fleet(api, http, install.NAMESPACE, self._stage)
            self._picture.fleet = fleet
            async with fleet.watching():
                with self._stage.phase("kubectl apply to Ready"):
                    await self._apply(tools, fleet)
                with self._stage.phase("endpoint answers"):
                    self.place = await self._endpoint(local, api, http)
                self._stage.tell(f"endpoint {self.place.endpoint}, model {self.place.model}")
                await self._traffic(local, http, fleet, self.place)

    async def _apply(self, tools: install.Tools, fleet: watch.Fleet) -> None:
        for line in await asyncio.to_thread(install.apply, tools, self._options.checkout / "examples/quickstart"):
            self._stage.tell(line)
        if not await fleet.until(lambda: bool(fleet.status), SERVICE_APPEARS_S):
            raise DemoError("the operator wrote no status within 60 s; see `kubectl logs` of the operator")
        if not await fleet.until(lambda: fleet.ready, SERVICE_READY_S):
            reason = fleet.condition("Ready")
            raise DemoError(f"not Ready after {SERVICE_READY_S:.0f} s: {reason.get('reason')}: {reason.get('message')}")

    async def _endpoint(self, local: cluster.Cluster, api: kube.Kube, http: aiohttp.ClientSession) -> Place:
        """The address that the local load balancer gave the router's Service, once it lists the model.

        A ModelService is Ready when the routers have its replicas; that a router is Ready for clients, and that a load
        balancer knows it, comes a moment later, here as in any cluster."""
        path = f"/api/v1/namespaces/{install.NAMESPACE}/services/shoal-router-default"
        problem = "it got no address"
        for _ in range(int(ROUTER_READY_S / ENDPOINT_EVERY_S)):
            try:
                service = await api.get(path)
                address = (service["metadata"].get("annotations") or {}).get(cluster.ADDRESS_ANNOTATION, "")
                if address:
                    endpoint = f"http://{address.partition(',')[0]}"
                    model = await run.find_model(http, client.Settings(url=endpoint))
                    return Place(local.kubeconfig, endpoint, model)
            except (*kube.ERRORS, run.ReplayError) as error:
                problem = str(error)
            await asyncio.sleep(ENDPOINT_EVERY_S)
        raise DemoError(f"the router's Service does not answer after {ROUTER_READY_S:.0f} s: {problem}")

    async def _traffic(
        self, local: cluster.Cluster, http: aiohttp.ClientSession, fleet: watch.Fleet, place: Place
    ) -> None:
        options = self._options
        conversations = trace.read(options.checkout / "examples/traces/coding-agents-sample.jsonl.gz").conversations
        recorder = self._recorder = self._picture.recorder = results.Recorder()
        self._load_s = self._stage.now_s()
        self._marks = replace(self._marks, load_s=self._load_s)
        sender = client.Client(http, client.Settings(url=place.endpoint), recorder.began_s)
        pace = drive.Pace(speedup=options.speedup, think_max_s=options.think_max_s, seed=options.seed, grace_s=GRACE_S)
        driver = drive.Driver(sender, recorder, model=place.model, pace=pace)
        half = len(conversations) // 2
        async with self._running(driver, conversations[:half], options.sessions):
            with self._stage.phase(f"{options.sessions} sessions, one replica killed"):
                await self._kill(local, fleet)
            async with self._running(driver, conversations[half:], options.sessions):
                with self._stage.phase(f"{2 * options.sessions} sessions, scale out"):
                    await self._scale_out(fleet)
                self._marks = replace(self._marks, load_ended_s=self._stage.now_s())
                driver.stop()
        with self._stage.phase("no load, scale in"):
            await self._scale_in(fleet)

    @contextlib.asynccontextmanager
    async def _running(
        self, driver: drive.Driver, conversations: tuple[trace.Conversation, ...], sessions: int
    ) -> AsyncIterator[None]:
        """Sessions that run until the driver is stopped; on an error they are cancelled."""
        self._stage.tell(f"{sessions} sessions begin")
        ramp_s = min(10.0, sessions / 2)
        work = driver.finish(driver.sessions(conversations, count=sessions, loop=True, ramp_s=ramp_s))
        task = asyncio.create_task(work)
        try:
            yield
            await task
        finally:
            task.cancel()
            await asyncio.wait({task})

    async def _kill(self, local: cluster.Cluster, fleet: watch.Fleet) -> None:
        await asyncio.sleep(KILL_AFTER_S)
        await fleet.until(lambda: any(row.in_flight for row in fleet.rows()), 10.0)
        rows = [row for row in fleet.rows() if row.phase == "Ready"]
        if len(rows) < 2:
            raise DemoError(f"{len(rows)} replicas are ready; two are needed to kill one")
        victim = max(rows, key=lambda row: row.in_flight or 0)
        pod = f"{victim.name}-0"
        self._marks = replace(
            self._marks,
            kill_s=self._stage.now_s(),
            killed_replica=victim.name,
            streams_on_killed=victim.in_flight,
        )
        self._stage.tell(f"SIGKILL to {pod}, with {victim.in_flight} requests in flight")
        await local.kill(install.NAMESPACE, pod, keys.ENGINE_CONTAINER)
        await asyncio.sleep(AFTER_KILL_S)
        ready, desired = fleet.counts
        if not await fleet.until(lambda: fleet.counts[0] >= fleet.counts[1], KILLED_BACK_S):
            raise DemoError(f"the killed replica did not come back within {KILLED_BACK_S:.0f} s: {ready} of {desired}")

    async def _scale_out(self, fleet: watch.Fleet) -> None:
        before = fleet.counts[1]
        self._marks = replace(self._marks, doubled_s=self._stage.now_s())
        if await fleet.until(lambda: fleet.counts[0] > before, SCALE_OUT_S):
            self._stage.tell(f"scaled out to {fleet.counts[0]} ready replicas")
            await asyncio.sleep(AFTER_SCALE_OUT_S)
        else:
            self._stage.tell(f"no scale-out within {SCALE_OUT_S:.0f} s")

    async def _scale_in(self, fleet: watch.Fleet) -> None:
        before = fleet.counts[1]
        if await fleet.until(lambda: max(fleet.counts) < before, SCALE_IN_S):
            self._stage.tell(f"scaled in to {fleet.counts[1]} replicas")
        else:
            self._stage.tell(f"no scale-in within {SCALE_IN_S:.0f} s")
