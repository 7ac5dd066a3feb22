"""The field tables of docs/kinds, made from the same schemas as the CRDs, so that a page cannot describe another API.

A page is prose with two marked places, spec and status; everything between a pair of marks is replaced. `crd` calls it.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from shoal_api import quantities

Schema = dict[str, Any]

_PLACE: Final = re.compile(r"(<!-- fields: (\w+) -->\n).*?(<!-- end of fields -->)", re.DOTALL)


def with_tables(page: str, schema: Schema) -> str:
    """The page with its tables made anew; ValueError for a page that lacks the place for spec or status."""
    places = [match[2] for match in _PLACE.finditer(page)]
    if places != ["spec", "status"]:
        raise ValueError(f"a page has marked places for spec and status in this order, not {places}")
    return _PLACE.sub(lambda match: match[1] + table(schema["properties"][match[2]]) + match[3], page)


def table(schema: Schema) -> str:
    """One Markdown table with a row a field, nested fields under their parents."""
    rows = ["| field | type | default | what it is |", "|---|---|---|---|"]
    rows += [f"| `{path}` | {kind} | {default} | {text} |" for path, kind, default, text in _rows(schema, "")]
    rules = [f"- {f'`{path}`: ' if path else ''}{message}.\n" for path, message in _rules(schema, "")]
    text = "\n".join(rows) + "\n"
    if rules:
        text += "\nRules that the kube-apiserver checks at apply:\n\n" + "".join(rules)
    return text


def _rows(schema: Schema, prefix: str) -> Iterator[tuple[str, str, str, str]]:
    required = schema.get("required", ())
    for name, child in schema.get("properties", {}).items():
        path = f"{prefix}{name}"
        if child.get("type") == "array":
            path += "[]"
        yield path, _type(child), _default(child, name in required), _text(child)
        inner = child.get("items", child)
        yield from _rows(inner, f"{path}.")


def _rules(schema: Schema, path: str) -> Iterator[tuple[str, str]]:
    for rule in schema.get("x-kubernetes-validations", ()):
        yield path, rule["message"]
    for name, child in schema.get("properties", {}).items():
        yield from _rules(child, f"{path}.{name}" if path else name)
    if "items" in schema:
        yield from _rules(schema["items"], f"{path}[]")


def _type(schema: Schema) -> str:
    if schema.get("x-kubernetes-int-or-string"):
        return "quantity"
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return "any"
    if "enum" in schema:
        return " \\| ".join(f"`{value}`" for value in schema["enum"])
    if schema.get("pattern") == quantities.DURATION_PATTERN:
        return "duration"
    kind = schema.get("type", "any")
    if kind == "array":
        return f"list of {_type(schema['items'])}"
    if kind == "object" and "additionalProperties" in schema:
        return f"map of {_type(schema['additionalProperties'])}"
    low, high = schema.get("minimum"), schema.get("maximum")
    if kind in ("integer", "number") and (low is not None or high is not None):
        return f"{kind} {'' if low is None else low}..{'' if high is None else high}"
    return str(kind)


def _default(schema: Schema, required: bool) -> str:
    if required:
        return "required"
    value = schema.get("default")
    if value is None or value == "" or isinstance(value, dict):
        return ""
    return f"`{value if isinstance(value, str) else json.dumps(value)}`"


def _text(schema: Schema) -> str:
    return str(schema.get("description", "")).replace("|", "\\|")
