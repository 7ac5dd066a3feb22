"""Durations and Kubernetes quantities as users write them, and the numbers they mean.

The kinds keep both as strings, so that an object reads back as it was written; every consumer converts at its own edge
with `duration_s` and `quantity_bytes`. Both parsers accept exactly what the patterns in the CRDs accept.
"""

import re
from decimal import Decimal
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, StringConstraints, WithJsonSchema

DURATION_PATTERN: Final = r"^([0-9]+(\.[0-9]+)?(h|m|s|ms))+$"
"""Go's own duration syntax without signs and without units under a millisecond: `30m`, `1h30m`, `40ms`, `1.5s`."""
QUANTITY_PATTERN: Final = r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$"
"""Kubernetes quantities without signs and exponents: `64Gi`, `500m`, `2`."""

_DURATION_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(h|ms|m|s)")
_QUANTITY: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)([a-zA-Z]*)")
_UNIT_S: Final = {"h": Decimal(3600), "m": Decimal(60), "s": Decimal(1), "ms": Decimal("0.001")}
_SUFFIX: Final = {
    "": Decimal(1),
    "m": Decimal("0.001"),
    **{suffix: Decimal(1000) ** (power + 1) for power, suffix in enumerate("kMGTPE")},
    **{f"{suffix}i": Decimal(1024) ** (power + 1) for power, suffix in enumerate("KMGTPE")},
}


def _number_as_text(value: Any) -> Any:
    """A quantity may be a bare number in YAML; the kinds keep it as text."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return value


Duration = Annotated[str, StringConstraints(pattern=DURATION_PATTERN, max_length=32)]
Quantity = Annotated[
    str,
    BeforeValidator(_number_as_text),
    StringConstraints(pattern=QUANTITY_PATTERN, max_length=32),
    WithJsonSchema(
        {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "x-kubernetes-int-or-string": True,
            "pattern": QUANTITY_PATTERN,
            "maxLength": 32,
        }
    ),
]


def duration_s(text: str) -> float:
    """Seconds of a duration such as `1h30m`; ValueError where the text is not one."""
    if re.fullmatch(DURATION_PATTERN, text) is None:
        raise ValueError(f"not a duration (h, m, s, ms): {text!r}")
    return float(sum(Decimal(number) * _UNIT_S[unit] for number, unit in _DURATION_PART.findall(text)))


def quantity(text: str) -> Decimal:
    """The exact value of a quantity such as `500m` or `64Gi`; ValueError where the text is not one."""
    match = _QUANTITY.fullmatch(text)
    if match is None or match[2] not in _SUFFIX:
        raise ValueError(f"not a Kubernetes quantity: {text!r}")
    return Decimal(match[1]) * _SUFFIX[match[2]]


def quantity_bytes(text: str) -> int:
    """Bytes of a quantity, rounded up, as Kubernetes does for whole-number resources."""
    value = quantity(text)
    return int(value.to_integral_value(rounding="ROUND_CEILING"))
