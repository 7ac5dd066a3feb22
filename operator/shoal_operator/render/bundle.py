"""Ordered sets of manifests: what belongs to a service as a whole, and everything of it at once. Pure.

The reconciler applies `render_service` and, for each `Create`, `render_replica`; `shoal plan -o yaml` and the golden
tests print `render_all`.
"""

from collections.abc import Iterable

from shoal_api import keys
from shoal_operator.domain import naming, revision, values
from shoal_operator.render import engine, meta


def render_service(service: values.Service, owner: values.Owner | None = None) -> list[meta.Manifest]:
    """What a service has once, whatever its replicas: the disruption budget of its engines."""
    return [
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": meta.metadata(
                naming.budget_name(service.name), service.namespace, meta.engine_labels(service), owner
            ),
            "spec": {
                # A replica is one Pod: evictions take one at a time, whatever the nodes' drain wants.
                "maxUnavailable": 1,
                # What does not serve is no loss; else one loading or crashing engine would block every node drain.
                "unhealthyPodEvictionPolicy": "AlwaysAllow",
                "selector": {"matchLabels": {keys.LABEL_SERVICE: service.name, keys.LABEL_COMPONENT: "engine"}},
            },
        }
    ]


def render_all(
    service: values.Service,
    current: revision.Revision,
    replicas: Iterable[tuple[int, values.Profile]],
    owner: values.Owner | None = None,
) -> list[meta.Manifest]:
    """Everything of a service, in the order in which it is applied."""
    made = render_service(service, owner)
    for number, profile in replicas:
        made += engine.render_replica(service, current, number, profile, owner)
    return made


def render_controller_revision(
    service: values.Service, current: revision.Revision, number: int, owner: values.Owner | None = None
) -> meta.Manifest:
    """The record of a revision, from which it can be rendered again after the spec has moved on. `number` grows."""
    labels = {**meta.engine_labels(service), keys.LABEL_REVISION: current.short}
    annotations = {keys.ANNOTATION_REVISION: current.hash, keys.ANNOTATION_RENDER_VERSION: current.render_version}
    name = naming.revision_name(service.name, current.short)
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": meta.metadata(name, service.namespace, labels, owner, annotations),
        "revision": number,
        "data": revision.snapshot(service),
    }
