"""What all kinds share: object metadata, conditions, and the base classes of spec and status models.

Specs refuse unknown fields, as the kube-apiserver's strict decoding does, so that an operator that is older than the
CRDs says so instead of acting on half a spec. Status and metadata ignore them: others may write there.
"""

from typing import Any, ClassVar, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema


class Rule(NamedTuple):
    """One CEL rule of a schema. The kube-apiserver evaluates it, so it holds while the operator is down."""

    rule: str
    message: str
    reason: Literal["FieldValueInvalid", "FieldValueForbidden", "FieldValueRequired"] = "FieldValueInvalid"
    field_path: str | None = None

    def as_schema(self) -> dict[str, Any]:
        """The rule as an entry of `x-kubernetes-validations`."""
        entry = {"rule": self.rule, "message": self.message, "reason": self.reason}
        if self.field_path is not None:
            entry["fieldPath"] = self.field_path
        return entry


def immutable(name: str) -> dict[str, Any]:
    """Schema extra of a field that keeps the value it was created with."""
    rule = Rule("self == oldSelf", f"{name} is immutable: delete the object and create it anew")
    return {"x-kubernetes-validations": [rule.as_schema()]}


POSITIVE_DURATION: dict[str, Any] = {
    "x-kubernetes-validations": [Rule("duration(self) > duration('0s')", "must be more than zero").as_schema()]
}
"""Schema extra of a duration that cannot be nothing."""
POSITIVE_QUANTITY: dict[str, Any] = {
    "x-kubernetes-validations": [
        Rule("quantity(string(self)).isGreaterThan(quantity('0'))", "must be more than zero").as_schema()
    ]
}
"""Schema extra of a quantity that cannot be nothing."""


class _ApiModel(BaseModel):
    """camelCase in YAML, snake_case in Python; attribute docstrings become the schema's descriptions."""

    model_config = ConfigDict(
        frozen=True,
        alias_generator=to_camel,
        populate_by_name=True,
        use_attribute_docstrings=True,
        extra="ignore",
    )
    rules: ClassVar[tuple[Rule, ...]] = ()

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        schema = handler.resolve_ref_schema(handler(core))
        if cls.rules:
            schema["x-kubernetes-validations"] = [rule.as_schema() for rule in cls.rules]
        return schema

    def as_object(self) -> dict[str, Any]:
        """The model as it stands in an object: camelCase, without the fields that are not set."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


class SpecModel(_ApiModel):
    """Base of everything under `spec`."""

    model_config = ConfigDict(extra="forbid")


class StatusModel(_ApiModel):
    """Base of everything under `status`."""


class ObjectMeta(_ApiModel):
    """The part of an object's metadata that Shoal reads."""

    name: str
    namespace: str = ""
    uid: str = ""
    generation: int = 0
    resource_version: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)


class Condition(StatusModel):
    """One condition, as Kubernetes writes them everywhere."""

    type: str = Field(max_length=64)
    """What the condition tells, in PascalCase."""
    status: Literal["True", "False", "Unknown"]
    """Whether it is so."""
    reason: str = Field(max_length=128, pattern=r"^[A-Z][A-Za-z0-9]*$")
    """Why, from a closed list."""
    message: str = Field(default="", max_length=4096)
    """The same for a reader, with names and numbers."""
    last_transition_time: str = Field(max_length=64, json_schema_extra={"format": "date-time"})
    """When the status changed last."""
    observed_generation: int = Field(default=0, ge=0)
    """Generation of the spec that this was decided for."""


CONDITIONS_EXTRA: dict[str, Any] = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
"""Conditions are a list keyed by type, so that two writers of different conditions do not undo each other."""


def keyed_by(*keys: str) -> dict[str, Any]:
    """Schema extra of a list whose items are told apart by the given fields, none of which may occur twice."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}


SET_EXTRA: dict[str, Any] = {"x-kubernetes-list-type": "set"}
"""Schema extra of a list of scalars without duplicates."""

ATOMIC_EXTRA: dict[str, Any] = {"x-kubernetes-list-type": "atomic"}
"""Schema extra of a list that is replaced as a whole."""
