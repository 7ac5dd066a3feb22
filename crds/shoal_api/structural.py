"""From a pydantic model to the structural schema that a CustomResourceDefinition takes.

Pydantic writes JSON Schema with references, nulls and titles; the kube-apiserver wants one inlined OpenAPI v3 tree in
which every node has a type. Pure functions over fresh dicts; `crd` and `reference` call them.
"""

import copy
from typing import Any, Final

from pydantic import BaseModel

Schema = dict[str, Any]

_DROPPED: Final = ("title", "propertyNames", "$defs")
_VALIDATIONS: Final = "x-kubernetes-validations"


def of_model(model: type[BaseModel], *, defaults: bool = True) -> Schema:
    """The schema of one model. Without `defaults` none are written, as for status, which its writer fills whole."""
    document = model.model_json_schema(by_alias=True, mode="validation")
    return _convert(document, document.get("$defs", {}), defaults)


def _merged(under: Schema, over: Schema) -> Schema:
    """`over` wins, but the rules of both hold."""
    rules = [*under.get(_VALIDATIONS, ()), *over.get(_VALIDATIONS, ())]
    merged = {**under, **over}
    if rules:
        merged[_VALIDATIONS] = rules
    return merged


def _resolved(node: Schema, definitions: dict[str, Schema]) -> Schema:
    """Follow references and take the null branch out of optional fields."""
    node = dict(node)
    if "$ref" in node:
        target = definitions[node.pop("$ref").rsplit("/", 1)[1]]
        return _resolved(_merged(target, node), definitions)
    branches = node.get("anyOf")
    if branches and {"type": "null"} in branches:
        rest = [branch for branch in branches if branch != {"type": "null"}]
        if len(rest) != 1:
            raise TypeError(f"a field is null or one thing, not null or {len(rest)} things: {node}")
        del node["anyOf"]
        return _resolved(_merged(rest[0], node), definitions)
    return node


def _kept_default(value: Any, node: Schema) -> bool:
    """Null and empty defaults would only fill stored objects with noise; absent means the same."""
    if isinstance(value, dict):
        return bool(node.get("properties"))
    return value is not None and value != []


def _inner_defaults(node: Schema) -> dict[str, Any]:
    """What an absent object stands for: written whole, for rules are tried on a default as it is written."""
    children = node["properties"].items()
    return {name: copy.deepcopy(child["default"]) for name, child in children if "default" in child}


def _convert(node: Schema, definitions: dict[str, Schema], defaults: bool) -> Schema:
    node = _resolved(node, definitions)
    for key in _DROPPED:
        node.pop(key, None)
    if "const" in node:
        node["enum"] = [node.pop("const")]
    for bound, limit in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if bound in node:
            node[limit], node[bound] = node[bound], True
    if node.get("type") == "integer":
        node["format"] = "int64"
    if "description" in node:
        node["description"] = " ".join(node["description"].split())
    if isinstance(node.get("additionalProperties"), dict):
        node["additionalProperties"] = _convert(node["additionalProperties"], definitions, defaults)
    else:
        node.pop("additionalProperties", None)
    if "items" in node:
        node["items"] = _convert(node["items"], definitions, defaults)
    if "properties" in node:
        node["properties"] = {
            name: _convert(child, definitions, defaults) for name, child in node["properties"].items()
        }
    if "default" in node:
        value = node.pop("default")
        if defaults and _kept_default(value, node):
            node["default"] = _inner_defaults(node) if isinstance(value, dict) else value
    return node
