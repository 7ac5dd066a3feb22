"""Environment of a container: image variables, then the cluster's, envFrom, env in order with $(VAR) expansion."""

from collections.abc import Mapping
from typing import Any

from shoal_local.agent import expansion, fields
from shoal_local.agent.fields import Place
from shoal_local.agent.references import References


async def build_environment(
    pod: Mapping[str, Any], container: Mapping[str, Any], base: Mapping[str, str], references: References, place: Place
) -> dict[str, str]:
    """The whole environment; ConfigError when something referred to is missing."""
    variables = dict(base)
    for source in container.get("envFrom") or []:
        variables |= await _from_source(source, references)
    for each in container.get("env") or []:
        value = await _value(pod, container, each, references, place)
        if value is not None:
            variables[each["name"]] = expansion.expand(value, variables) if "value" in each else value
        elif "valueFrom" not in each:
            variables[each["name"]] = ""
    return variables


async def _from_source(source: Mapping[str, Any], references: References) -> dict[str, str]:
    prefix = source.get("prefix", "")
    if "configMapRef" in source:
        reference = source["configMapRef"]
        data = await references.data("configmaps", reference["name"], bool(reference.get("optional")))
    else:
        reference = source["secretRef"]
        data = await references.data("secrets", reference["name"], bool(reference.get("optional")))
    return {f"{prefix}{key}": value.decode(errors="replace") for key, value in (data or {}).items()}


async def _value(
    pod: Mapping[str, Any],
    container: Mapping[str, Any],
    each: Mapping[str, Any],
    references: References,
    place: Place,
) -> str | None:
    source = each.get("valueFrom")
    if source is None:
        return each.get("value")
    if "fieldRef" in source:
        return fields.field_value(pod, source["fieldRef"]["fieldPath"], place)
    if "resourceFieldRef" in source:
        return fields.resource_value(pod, source["resourceFieldRef"], container["name"], place)
    kind, selector = (
        ("configmaps", source["configMapKeyRef"])
        if "configMapKeyRef" in source
        else ("secrets", source["secretKeyRef"])
    )
    found = await references.value(kind, selector)  # type: ignore[arg-type]
    return None if found is None else found.decode(errors="replace")
