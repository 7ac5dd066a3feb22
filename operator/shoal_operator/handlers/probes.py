"""The operator's own HTTP: `/livez` and `/readyz` on the health port, `/metrics` on the metrics port."""

from collections.abc import Awaitable, Callable

from aiohttp import web
from prometheus_client import CollectorRegistry, exposition

Check = Callable[[], bool]


class Probes:
    def __init__(self, host: str, health_port: int, metrics_port: int) -> None:
        self._host = host
        self._health_port = health_port
        self._metrics_port = metrics_port
        self._runners: list[web.AppRunner] = []

    async def start(self, *, live: Check, ready: Check, registry: CollectorRegistry) -> None:
        """Listen on both ports; OSError where one is taken."""
        health = web.Application()
        health.router.add_get("/livez", _answer(live))
        health.router.add_get("/readyz", _answer(ready))
        await self._listen(health, self._health_port)

        async def metrics(_: web.Request) -> web.Response:
            content_type = exposition.CONTENT_TYPE_PLAIN_0_0_4
            return web.Response(body=exposition.generate_latest(registry), headers={"Content-Type": content_type})

        scraped = web.Application()
        scraped.router.add_get("/metrics", metrics)
        await self._listen(scraped, self._metrics_port)

    async def stop(self) -> None:
        for runner in self._runners:
            await runner.cleanup()

    async def _listen(self, application: web.Application, port: int) -> None:
        runner = web.AppRunner(application, handle_signals=False, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        self._runners.append(runner)
        await web.TCPSite(runner, self._host, port).start()


def _answer(check: Check) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def handler(_: web.Request) -> web.StreamResponse:
        good = check()
        return web.Response(text="ok\n" if good else "not ok\n", status=200 if good else 503)

    return handler
