"""Kubernetes quantities (`1500m`, `16Gi`) as numbers, for resourceFieldRef and size limits. Pure."""

import math
from decimal import Decimal, InvalidOperation
from typing import Final

_SUFFIXES: Final = {
    **{suffix: Decimal(1024) ** power for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), start=1)},
    **{suffix: Decimal(1000) ** power for power, suffix in enumerate(("k", "M", "G", "T", "P", "E"), start=1)},
    "m": Decimal(1) / 1000,
    "u": Decimal(1) / 1_000_000,
    "n": Decimal(1) / 1_000_000_000,
}


def parse_quantity(text: str | int | float) -> Decimal:
    """The value in base units (cores, bytes); ValueError when it is not a quantity."""
    written = str(text).strip()
    for suffix in sorted(_SUFFIXES, key=len, reverse=True):
        if written.endswith(suffix):
            number, factor = written.removesuffix(suffix), _SUFFIXES[suffix]
            break
    else:
        number, factor = written, Decimal(1)
    try:
        return Decimal(number) * factor
    except InvalidOperation as error:
        raise ValueError(f"{text!r} is not a quantity") from error


def divided(quantity: str | int | float, divisor: str | int | float) -> int:
    """A quantity in units of the divisor, rounded up, as resourceFieldRef gives it."""
    unit = parse_quantity(divisor)
    return math.ceil(parse_quantity(quantity) / (unit if unit > 0 else Decimal(1)))
