"""Router: its Deployment and what goes with it, and the route table that all ModelServices of it share."""

from typing import Final

import pydantic

from shoal_api import keys, routes
from shoal_api.conditions import ConditionType, Reason
from shoal_api.modelservice import ModelServiceStatus
from shoal_api.router import RouterReplicas, RouterSpec, RouterStatus
from shoal_operator.domain import naming, revision, values
from shoal_operator.kube import errors, resources
from shoal_operator.kube.resources import Object
from shoal_operator.reconcile import report, resolving, routetable
from shoal_operator.reconcile.conditions import Finding
from shoal_operator.reconcile.context import Context
from shoal_operator.reconcile.outcome import Done, Key, Outcome, Requeue
from shoal_operator.reconcile.world import MANAGED
from shoal_operator.render import meta as render_meta
from shoal_operator.render import router as render

BALANCER_LOOK_S: Final = 10.0
"""How often a Service that waits for its load balancer is looked at."""


async def reconcile(context: Context, key: Key) -> Outcome:
    items = await context.world.list_objects(resources.ROUTERS, key.namespace)
    item = next((one for one in items if one["metadata"]["name"] == key.name), None)
    if item is None or "deletionTimestamp" in item["metadata"]:
        return Done()
    old = report.stored(RouterStatus, item)
    try:
        spec = RouterSpec.model_validate(item.get("spec") or {})
    except pydantic.ValidationError as error:
        field, message = resolving.first_error(error)
        refused = Finding(ConditionType.ACCEPTED, "False", Reason.INVALID_SPEC, f"spec.{field}: {message}")
        status, edges = report.with_conditions(context, item, old, old, [refused])
        await report.write(context, item, old, status, edges)
        return Done()
    owner = values.Owner(item["apiVersion"], item["kind"], key.name, item["metadata"]["uid"])
    table = await _apply_routes(context, key, spec, owner)
    deployment = await _apply_processes(context, key, spec, owner)
    balancer = await _balancer_url(context, key, spec)
    url = balancer or render.url(key.name, key.namespace)
    status, findings = _status(key.name, url, spec, table, deployment)
    status, edges = report.with_conditions(context, item, old, status, findings)
    await report.write(context, item, old, status, edges)
    if spec.service_type == "LoadBalancer" and balancer is None:
        return Requeue(BALANCER_LOOK_S, "the load balancer's address")
    return Done()


async def _balancer_url(context: Context, key: Key, spec: RouterSpec) -> str | None:
    """Read, not watched: an address comes once, minutes after the Service, and stays."""
    if spec.service_type != "LoadBalancer":
        return None
    try:
        service = await context.client.get(resources.SERVICES, naming.router_name(key.name), key.namespace)
    except errors.NotFoundError:
        return None
    return render.balancer_url(service)


async def _apply_routes(context: Context, key: Key, spec: RouterSpec, owner: values.Owner) -> routes.RouteTable:
    """The route table first: routers that start later find it, and what drains must be known soonest."""
    labels = {**MANAGED, keys.LABEL_ROUTER: key.name, keys.LABEL_COMPONENT: "router"}
    stored = await context.client.list_objects(resources.CONFIG_MAPS, key.namespace, labels=labels)
    name = keys.routes_config_map(key.name)
    observed = next((one for one in stored if one["metadata"]["name"] == name), None)
    table = routetable.table(spec, await _entries(context, key, _stored_table(observed)))
    await context.applier.apply(render.render_route_table(key.name, key.namespace, table, owner), observed)
    return table


async def _entries(context: Context, key: Key, before: routes.RouteTable | None) -> list[routes.Service]:
    services = await context.world.list_objects(resources.MODEL_SERVICES, key.namespace)
    mine = [one for one in services if ((one.get("spec") or {}).get("router") or "default") == key.name]
    catalog = await context.world.catalog(key.namespace)
    refused = context.claims.of(services, key.name)
    old = {one.name: one for one in before.services} if before is not None else {}
    entries = []
    for item in mine:
        name = item["metadata"]["name"]
        draining = context.drains.get(Key(resources.MODEL_SERVICES.kind, key.namespace, name))
        if draining is None:  # its StatefulSets were not looked at yet: what was said of them stays said
            draining = old[name].draining if name in old else ()
        resolved = context.resolver.resolve(item, catalog)
        if resolved.service is None or not resolved.accepted or name in refused:
            if name in old:
                entries.append(old[name].model_copy(update={"draining": draining}))
            continue
        status = item.get("status") or {}
        current = revision.current(resolved.service, status.get("currentRevision"), status.get("renderVersion"))
        entries.append(
            routetable.entry(
                resolved.service,
                revision=current.short,
                draining=draining,
                first_on_its_way=routetable.first_on_its_way(report.stored(ModelServiceStatus, item)),
            )
        )
    return entries


def _stored_table(config_map: Object | None) -> routes.RouteTable | None:
    text = ((config_map or {}).get("data") or {}).get(keys.ROUTES_KEY)
    if text is None:
        return None
    try:
        return routes.RouteTable.model_validate_json(text)
    except pydantic.ValidationError:
        return None  # edited by hand; written anew right now


async def _apply_processes(context: Context, key: Key, spec: RouterSpec, owner: values.Owner) -> Object | None:
    """The stored Deployment after it."""
    labels = {**MANAGED, keys.LABEL_ROUTER: key.name, keys.LABEL_COMPONENT: "router"}
    deployments = await context.client.list_objects(resources.DEPLOYMENTS, key.namespace, labels=labels)
    name = naming.router_name(key.name)
    observed = next((one for one in deployments if one["metadata"]["name"] == name), None)
    for manifest in render.render_router(key.name, key.namespace, spec, context.settings.router_image, owner):
        if manifest["kind"] == resources.DEPLOYMENTS.kind:
            observed = (await context.applier.apply(manifest, observed)).item
        else:
            await context.applier.ensure(manifest)
    return observed


def _status(
    name: str, url: str, spec: RouterSpec, table: routes.RouteTable, deployment: Object | None
) -> tuple[RouterStatus, list[Finding]]:
    stored = (deployment or {}).get("status") or {}
    ready = int(stored.get("readyReplicas") or 0)
    status = RouterStatus(
        url=url,
        replicas=RouterReplicas(desired=spec.replicas, ready=ready, summary=f"{ready}/{spec.replicas}"),
        selector=render_meta.selector({keys.LABEL_ROUTER: name, keys.LABEL_COMPONENT: "router"}),
        models=routetable.names(table)[:1000],
    )
    accepted = Finding(ConditionType.ACCEPTED, "True", Reason.ACCEPTED)
    if ready >= spec.replicas:
        return status, [accepted, Finding(ConditionType.READY, "True", Reason.ROUTER_READY)]
    message = f"{ready} of {spec.replicas} router Pods are ready"
    return status, [accepted, Finding(ConditionType.READY, "False", Reason.ROUTER_STARTING, message)]
