"""One engine as its source describes it, before anybody has talked to it; and who wants to know."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from shoal_api import routes


@dataclass(frozen=True, slots=True)
class Target:
    """`uid` changes when the engine's process may have lost its cache: another Pod, or its container started anew."""

    name: str
    service: str
    host: str
    port: int
    uid: str
    revision: str = ""
    gpu: str = ""
    ready: bool = True
    terminating: bool = False

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"


class Sink(Protocol):
    """Gets the whole picture at every change. Discovery is synced when both have been called once."""

    def on_table(self, table: routes.RouteTable) -> None: ...

    def on_targets(self, targets: Mapping[str, Target]) -> None: ...
