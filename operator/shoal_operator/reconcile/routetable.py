"""The route table of one Router, from resolved ModelServices. Pure; the Router's reconciler writes it.

Which replicas drain comes from the StatefulSets' annotations, so that table and annotation cannot disagree for long.
"""

import hashlib
from collections.abc import Iterable
from typing import Final

from shoal_api import quantities, routes
from shoal_api.conditions import Reason
from shoal_api.modelservice import ModelServiceStatus
from shoal_api.router import RouterSpec
from shoal_operator.domain import values

NO_START: Final = frozenset({Reason.REPLICA_FAILED, Reason.START_TIMEOUT})
"""Holds that say: what was started will not serve without a change."""
NO_REPLICA: Final = NO_START | {Reason.NO_SPARE_GPU, Reason.UNSCHEDULABLE, Reason.APPLY_FAILED, Reason.PAUSED}
"""Holds that say, in addition: nothing more will be started."""


def first_on_its_way(status: ModelServiceStatus) -> bool:
    """Whether requests may wait for a first replica: none serves, and one is starting or about to be made.

    Where nothing is to be expected, clients had better hear so at once."""
    if status.replicas is None or status.replicas.desired == 0 or status.replicas.ready > 0:
        return False
    hold = status.rollout.hold if status.rollout is not None else None
    gate = hold.gate if hold is not None else ""
    phases = {detail.phase for detail in status.replica_details}
    if phases & {"Starting", "NotReady"} and gate not in NO_START:
        return True
    return phases <= {"Pending"} and gate not in NO_REPLICA


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
        slicing=service.slicing,
        itl_objective_s=None if service.scaling is None else service.scaling.itl_slo_s,
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
