"""Which ModelService answers to which name at a Router: the older one keeps a name that two ask for. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from shoal_operator.kube.resources import Object


@dataclass(frozen=True, slots=True)
class Claim:
    """A name that a service asked for, and the service that has it instead."""

    name: str
    holder: str


class Claims:
    """`conflicts` of a list that is asked about many times before it is read anew."""

    def __init__(self) -> None:
        self._services: list[Object] | None = None
        self._found: dict[str, dict[str, Claim]] = {}

    def of(self, services: list[Object], router: str) -> dict[str, Claim]:
        if self._services is not services:
            self._services = services
            self._found = {}
        if router not in self._found:
            self._found[router] = conflicts(services, router)
        return self._found[router]


def conflicts(services: Iterable[Object], router: str) -> dict[str, Claim]:
    """Services of one namespace and Router that may not serve, by name, each with the first name in the way."""
    mine = [item for item in services if str((item.get("spec") or {}).get("router") or "default") == router]
    holders: dict[str, str] = {}
    found: dict[str, Claim] = {}
    for item in sorted(mine, key=_age):
        service = item["metadata"]["name"]
        names = _names(item)
        taken = next((name for name in names if name in holders), None)
        if taken is not None:
            found[service] = Claim(taken, holders[taken])
        else:
            holders.update(dict.fromkeys(names, service))
    return found


def _age(item: Object) -> tuple[str, str]:
    """Oldest first; names decide between two of one second."""
    return str(item["metadata"].get("creationTimestamp") or ""), item["metadata"]["name"]


def _names(item: Object) -> list[str]:
    model = (item.get("spec") or {}).get("model") or {}
    return [str(model.get("servedName", "")), *map(str, model.get("aliases") or [])]
