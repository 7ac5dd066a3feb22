"""Text for people: what `shoal plan` and `shoal fit` print. Pure; the command line reads files and writes the result.

Both work offline, from the same functions that the operator runs, so what they say is what it will do.
"""

import shlex
from collections.abc import Iterable

from shoal_operator.domain import checks, fit, fleet, rehearsal, revision, values
from shoal_operator.sglang import launch

_GIB = fit.GIB


def problems_text(problems: Iterable[values.Problem]) -> str:
    """One line a problem: field, reason, message."""
    return "\n".join(f"{one.field}: {one.reason}: {one.message}" for one in problems)


def fit_text(service: values.Service, findings: checks.Findings) -> str:
    """How the model fits each hardware profile, then refusals and warnings."""
    lines = [f"{service.namespace}/{service.name}  {service.source}"]
    if service.shape is not None:
        lines.append(f"shape {service.shape.name}: {service.shape.total_params / 1e9:,.1f} billion parameters")
    for found in findings.fits:
        if found is not None:
            lines += ["", *_fit_lines(found)]
    if findings.refusals:
        lines += ["", "refused:", problems_text(findings.refusals)]
    if findings.warnings:
        lines += ["", "warnings:", problems_text(findings.warnings)]
    return "\n".join(lines) + "\n"


def _fit_lines(found: fit.Fit) -> list[str]:
    assumed = " (assumed from the name)" if found.assumed else ""
    rows = [
        ("memory a GPU", f"{found.memory_bytes / _GIB:.1f} GiB"),
        ("weights a GPU", f"{found.weight_bytes / _GIB:.1f} GiB as {found.weight_format}{assumed}"),
        ("reserved a GPU", f"{found.reserve_bytes / _GIB:.1f} GiB for activations and graphs"),
        ("KV cache a GPU", f"{found.kv_bytes / _GIB:.1f} GiB at {found.kv_bytes_per_token:,.0f} bytes a token"),
        ("KV tokens a replica", f"{found.kv_tokens:,}"),
        ("sessions at once", f"{found.sessions_median} of median length, {found.sessions_full} of full context"),
        ("headroom a GPU", f"{found.headroom_bytes / _GIB:.1f} GiB beyond one context of {found.context_tokens:,}"),
    ]
    verdict = "fits" if found.fits else f"does not fit: {found.remedy}"
    return [f"{found.gpus} x {found.gpu}: {verdict}", *(f"  {name:<20} {value}" for name, value in rows)]


def plan_text(service: values.Service, current: revision.Revision, world: fleet.Fleet) -> str:
    """What routers are told, the command line of each profile, and the steps from the given fleet to the wanted one."""
    lines = [
        f"revision {current.short}, render version {current.render_version}",
        f"routing: affinity {service.affinity}, slicing {service.slicing} (a change of these moves no replica)",
    ]
    for profile in service.profiles:
        started = launch.render_launch(service, profile)
        lines += ["", f"{profile.gpus} x {profile.gpu}:", _command_text(started)]
    lines += ["", f"steps to {world.desired} replicas of {current.short}:"]
    for number, one in enumerate(rehearsal.rehearse(service.name, world), start=1):
        if one.plan.steps:
            lines += [f"  {number}. {_step_text(step)}" for step in one.plan.steps]
        elif one.plan.complete:
            lines.append("  done")
        elif one.plan.hold is not None and one.plan.hold.gate not in _PASSING:
            lines.append(f"  {number}. hold {one.plan.hold.gate}: {one.plan.hold.message}")
    return "\n".join(lines) + "\n"


_PASSING = frozenset({"Starting", "Draining", "RoutersNotAcknowledged"})
"""Holds that end by themselves in a rehearsal."""


def _command_text(started: launch.Launch) -> str:
    """As one shell command, a flag and its values a line."""
    groups: list[list[str]] = [list(started.command)]
    for argument in started.argv:
        if argument.startswith("--"):
            groups.append([argument])
        else:
            groups[-1].append(argument)
    environment = [f"  {name}={_env_text(value)} \\" for name, value in started.env]
    return "\n".join([*environment, " \\\n".join("  " + shlex.join(group) for group in groups)])


def _env_text(value: values.EnvValue) -> str:
    return shlex.quote(value) if isinstance(value, str) else f"'<{value.key} of Secret {value.name}>'"


def _step_text(step: fleet.Step) -> str:
    if isinstance(step, fleet.Create):
        return f"create replica {step.number} of {step.revision} on {step.gpu}"
    if isinstance(step, fleet.StartDrain):
        return f"drain {step.name} ({step.reason})"
    if isinstance(step, fleet.CancelDrain):
        return f"stop draining {step.name} ({step.reason})"
    return f"delete {step.name} ({step.reason})"
