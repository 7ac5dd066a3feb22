"""What a Pod asks for and a local process cannot have. Pure; `worker` turns the list into an event on the Pod.

Nothing here is refused: the Pod runs, and its events say how it differs from one on a real node.
"""

from collections.abc import Mapping
from typing import Any, Final

_HOST_FLAGS: Final = {
    "hostNetwork": "hostNetwork (every Pod is on the machine's network)",
    "hostPID": "hostPID (every Pod sees the machine's processes)",
    "hostIPC": "hostIPC (every Pod shares the machine's IPC)",
    "runtimeClassName": "runtimeClassName",
    "shareProcessNamespace": "shareProcessNamespace (every Pod sees the machine's processes)",
}


def differences(pod: Mapping[str, Any], private_root: bool) -> list[str]:
    """One phrase for each thing that is not as asked."""
    spec = pod["spec"]
    found = [text for field, text in _HOST_FLAGS.items() if spec.get(field)]
    containers = [*(spec.get("initContainers") or []), *spec["containers"]]
    pod_context = spec.get("securityContext") or {}
    for text, asked in (
        ("privileged containers", any(_context(each).get("privileged") for each in containers)),
        ("user and group ids (processes run as the user of the local cluster)", _sets_user(pod_context, containers)),
        ("capabilities", any(_context(each).get("capabilities") for each in containers)),
        ("seccomp and AppArmor profiles", _sets_profile(pod_context, containers)),
        ("sysctls", bool(pod_context.get("sysctls"))),
        ("cpu and memory limits", any(_limits(each) for each in containers)),
        ("gRPC probes", any(_grpc_probe(each) for each in containers)),
        ("raw block devices", any(each.get("volumeDevices") for each in containers)),
    ):
        if asked:
            found.append(text)
    if not private_root:
        if any(each.get("volumeMounts") for each in containers):
            found.append("volumes at their mount paths (SHOAL_VOLUME_<PATH> variables name their folders)")
        if any(_context(each).get("readOnlyRootFilesystem") for each in containers):
            found.append("readOnlyRootFilesystem")
    return found


def _context(container: Mapping[str, Any]) -> Mapping[str, Any]:
    return container.get("securityContext") or {}


def _limits(container: Mapping[str, Any]) -> bool:
    limits = (container.get("resources") or {}).get("limits") or {}
    return "cpu" in limits or "memory" in limits


def _sets_user(pod_context: Mapping[str, Any], containers: list[Mapping[str, Any]]) -> bool:
    fields = ("runAsUser", "runAsGroup", "fsGroup", "runAsNonRoot")
    return any(context.get(field) for context in (pod_context, *map(_context, containers)) for field in fields)


def _sets_profile(pod_context: Mapping[str, Any], containers: list[Mapping[str, Any]]) -> bool:
    fields = ("seccompProfile", "appArmorProfile", "seLinuxOptions")
    return any(context.get(field) for context in (pod_context, *map(_context, containers)) for field in fields)


def _grpc_probe(container: Mapping[str, Any]) -> bool:
    return any("grpc" in (container.get(f"{kind}Probe") or {}) for kind in ("startup", "readiness", "liveness"))
