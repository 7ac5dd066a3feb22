"""The route table of one Router, from resolved ModelServices. Pure; the Router's reconciler writes it.

Which replicas drain comes from the StatefulSets' annotations, so that table and annotation cannot disagree for long.
"""

import hashlib
from collections.abc import Iterable

from shoal_api import quantities, routes
from shoal_api.router import RouterSpec
from shoal_operator.domain import values


def entry(service: values.Service, *, revision: str, draining: Iterable[str], first_on_its_way: bool) -> routes.Service:
    """One service as routers see it. `first_on_its_way`: nothing serves, and a replica is starting."""
    return routes.Service(
        name=service.name,
        served_name=service.served_name,
        aliases=service.aliases,
        context_tokens=service.context_tokens,
        vocab_size=None if service.shape is None else service.shape.vocab,
        revision=revision,
        draining=tuple(sorted(draining)),
        affinity=service.affinity,
        queue=service.queue,
        timing={profile.gpu: profile.pool.timing for profile in service.profiles if profile.pool.timing is not None},
        scale_from_zero=first_on_its_way,
    )


def table(spec: RouterSpec, entries: Iterable[routes.Service]) -> routes.RouteTable:
    """The whole table; its generation is a hash of the rest, so equal tables are one generation."""
    content = routes.RouteTable(
        generation="",
        services=tuple(sorted(entries, key=lambda one: one.name)),
        session_headers=spec.session_headers,
        body_bytes_max=quantities.quantity_bytes(spec.limits.body_bytes_max),
        header_bytes_max=quantities.quantity_bytes(spec.limits.header_bytes_max),
    )
    digest = hashlib.sha256(content.model_dump_json().encode()).hexdigest()[:16]
    return content.model_copy(update={"generation": digest})


def names(built: routes.RouteTable) -> tuple[str, ...]:
    """Every name that clients may send."""
    return tuple(sorted({name for one in built.services for name in (one.served_name, *one.aliases)}))
