"""What a probe's results mean: defaults of the spec and the thresholds. Pure; `prober` does the asking."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

Kind = Literal["startup", "readiness", "liveness"]
HANDLERS: Final = ("exec", "httpGet", "tcpSocket")


@dataclass(frozen=True, slots=True)
class ProbeSpec:
    """A probe with its defaults filled in."""

    kind: Kind
    handler: str
    """One of HANDLERS."""
    action: Mapping[str, Any]
    initial_delay_s: float
    period_s: float
    timeout_s: float
    success_threshold: int
    failure_threshold: int
    grace_s: int | None


def parse_probe(kind: Kind, probe: Mapping[str, Any] | None) -> ProbeSpec | None:
    """A probe of a Pod, or None where there is none that can be run (gRPC)."""
    handler = next((name for name in HANDLERS if probe and name in probe), None)
    if probe is None or handler is None:
        return None
    return ProbeSpec(
        kind=kind,
        handler=handler,
        action=probe[handler] or {},
        initial_delay_s=float(probe.get("initialDelaySeconds", 0)),
        period_s=float(probe.get("periodSeconds", 10)),
        timeout_s=float(probe.get("timeoutSeconds", 1)),
        success_threshold=int(probe.get("successThreshold", 1)),
        failure_threshold=int(probe.get("failureThreshold", 3)),
        grace_s=probe.get("terminationGracePeriodSeconds"),
    )


@dataclass(frozen=True, slots=True)
class Verdict:
    """Where a probe stands; `passed` is None until a threshold has been reached."""

    passed: bool | None = None
    last: bool | None = None
    streak: int = 0

    def after(self, spec: ProbeSpec, succeeded: bool) -> "Verdict":
        """The verdict with one more result."""
        streak = self.streak + 1 if self.last is succeeded else 1
        threshold = spec.success_threshold if succeeded else spec.failure_threshold
        passed = succeeded if streak >= threshold else self.passed
        return Verdict(passed, succeeded, streak)


def resolve_port(port: int | str, ports: list[Mapping[str, Any]]) -> int:
    """A number, or the container port of that name; ValueError when there is none."""
    if isinstance(port, int):
        return port
    if port.isdecimal():
        return int(port)
    for each in ports:
        if each.get("name") == port:
            return int(each["containerPort"])
    raise ValueError(f"no container port is called {port!r}")
