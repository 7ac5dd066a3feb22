"""Status of a Pod from the states of its containers. Pure: the same rules as a kubelet's, and nothing else.

`worker` sends what this returns; `container` makes the views.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Waiting:
    """Not running, and why."""

    reason: str
    message: str = ""

    def render(self) -> Object:
        """As the API has it."""
        return {"waiting": {"reason": self.reason, **({"message": self.message} if self.message else {})}}


@dataclass(frozen=True, slots=True)
class Running:
    """Running since."""

    started_at: str

    def render(self) -> Object:
        """As the API has it."""
        return {"running": {"startedAt": self.started_at}}


@dataclass(frozen=True, slots=True)
class Terminated:
    """Ended, and how; `reason` is Completed, Error, StartError or another of Kubernetes' words."""

    exit_code: int
    reason: str
    started_at: str
    finished_at: str
    signal: int = 0
    message: str = ""
    container_id: str = ""

    def render(self) -> Object:
        """As the API has it."""
        body: Object = {
            "exitCode": self.exit_code,
            "reason": self.reason,
            "startedAt": self.started_at,
            "finishedAt": self.finished_at,
        }
        if self.signal:
            body["signal"] = self.signal
        if self.message:
            body["message"] = self.message
        if self.container_id:
            body["containerID"] = self.container_id
        return {"terminated": body}


State = Waiting | Running | Terminated


@dataclass(frozen=True, slots=True)
class View:
    """A container as its status shows it."""

    name: str
    image: str
    state: State
    last: Terminated | None = None
    restarts: int = 0
    ready: bool = False
    started: bool = False
    container_id: str = ""

    def render(self) -> Object:
        """A containerStatuses entry."""
        return {
            "name": self.name,
            "image": self.image,
            "imageID": f"process://{self.image}",
            "state": self.state.render(),
            "lastState": {} if self.last is None else self.last.render(),
            "restartCount": self.restarts,
            "ready": self.ready,
            "started": self.started,
            **({"containerID": self.container_id} if self.container_id else {}),
        }


@dataclass(frozen=True, slots=True)
class Facts:
    """What a Pod's status depends on."""

    inits: Sequence[View]
    """Init containers, sidecars among them, in order."""
    mains: Sequence[View]
    sidecars: frozenset[str]
    restart_policy: str
    gates: tuple[str, ...]
    pod_ip: str
    host_ip: str
    started_at: str
    stopped: bool = False
    """Every container has been stopped because the Pod is being deleted: its phase becomes final."""
    verdict: tuple[str, str] | None = None
    """(reason, message) of a Pod that was failed as a whole: Evicted, DeadlineExceeded."""


def parse_terminated(state: Mapping[str, Any] | None) -> Terminated | None:
    """The terminated state of an API object, if that is what it is."""
    body = (state or {}).get("terminated")
    if body is None:
        return None
    return Terminated(
        int(body["exitCode"]),
        body.get("reason", ""),
        body.get("startedAt") or "",
        body.get("finishedAt") or "",
        int(body.get("signal", 0)),
        body.get("message", ""),
        body.get("containerID", ""),
    )


def initialized(facts: Facts) -> bool:
    """Whether every init container has done its work: ended well, or, for a sidecar, started."""
    for view in facts.inits:
        if view.name in facts.sidecars:
            if not view.started and not isinstance(view.state, Terminated):
                return False
        elif not (isinstance(view.state, Terminated) and view.state.exit_code == 0):
            return False
    return True


def _exit_code(view: View) -> int:
    return view.state.exit_code if isinstance(view.state, Terminated) else 0


def phase_of(facts: Facts) -> str:
    """Pending, Running, Succeeded or Failed."""
    if facts.verdict is not None:
        return "Failed"
    if facts.stopped:
        ended_views = [view for view in facts.mains if isinstance(view.state, Terminated)]
        well = len(ended_views) == len(facts.mains) and not any(_exit_code(view) for view in ended_views)
        return "Succeeded" if well else "Failed"
    if not initialized(facts):
        failed = any(
            isinstance(view.state, Terminated) and view.state.exit_code != 0 and view.name not in facts.sidecars
            for view in facts.inits
        )
        return "Failed" if failed and facts.restart_policy == "Never" else "Pending"
    states = [view.state for view in facts.mains]
    helping = any(view.name in facts.sidecars and isinstance(view.state, Running) for view in facts.inits)
    ended = all(isinstance(state, Terminated) for state in states)
    if ended and not helping and facts.restart_policy != "Always":  # sidecars are stopped after the others
        if not any(map(_exit_code, facts.mains)):
            return "Succeeded"
        if facts.restart_policy == "Never":
            return "Failed"
    if any(isinstance(view.state, Waiting) and view.last is None for view in facts.mains):
        return "Pending"
    return "Running"


def _condition(kind: str, fact: bool, reason: str = "", message: str = "") -> Object:
    made: Object = {"type": kind, "status": "True" if fact else "False"}
    return made if fact else made | {"reason": reason, "message": message}


def conditions_of(facts: Facts, phase: str, gate_values: Mapping[str, str]) -> list[Object]:
    """The conditions that a kubelet owns; `gate_values` are the Pod's conditions by type, for readiness gates."""
    ended = phase in ("Succeeded", "Failed")
    done = "PodCompleted" if phase == "Succeeded" else "PodFailed"
    unready = [view.name for view in facts.mains if not view.ready]
    unready += [view.name for view in facts.inits if view.name in facts.sidecars and not view.ready]
    containers = not unready and not ended
    open_gates = [gate for gate in facts.gates if gate_values.get(gate) != "True"]
    unready_reason = done if ended else "ContainersNotReady"
    unready_message = "" if ended else f"containers with unready status: [{' '.join(unready)}]"
    begun = initialized(facts)
    waiting = [
        view.name for view in facts.inits if not isinstance(view.state, Terminated) and view.name not in facts.sidecars
    ]
    gate_message = f"the status of pod readiness gates is not True: {' '.join(open_gates)}"
    ready = (
        _condition("Ready", False, unready_reason, unready_message)
        if not containers
        else _condition("Ready", not open_gates, "ReadinessGatesNotReady", gate_message)
    )
    return [
        _condition("PodReadyToStartContainers", not ended, done),
        _condition("Initialized", begun, "ContainersNotInitialized", f"containers with incomplete status: {waiting}"),
        ready,
        _condition("ContainersReady", containers, unready_reason, unready_message),
    ]


def with_times(fresh: Sequence[Object], known: Sequence[Mapping[str, Any]], now: str) -> list[Object]:
    """Conditions with the time of their last change: kept where the status has not changed."""
    times = {(each["type"], each["status"]): each.get("lastTransitionTime") for each in known}
    return [each | {"lastTransitionTime": times.get((each["type"], each["status"])) or now} for each in fresh]


def render_status(facts: Facts, known: Mapping[str, Any], now: str) -> Object:
    """The status to send; `known` is the Pod's status as the API has it."""
    phase = phase_of(facts)
    ended = phase in ("Succeeded", "Failed")
    conditions = known.get("conditions") or []
    gate_values = {each["type"]: each["status"] for each in conditions}

    def shown(view: View) -> Object:
        return (replace(view, ready=False, started=False) if ended else view).render()

    reason, message = facts.verdict or ("", "")
    return {
        "phase": phase,
        "reason": reason or None,
        "message": message or None,
        "hostIP": facts.host_ip,
        "hostIPs": [{"ip": facts.host_ip}],
        "podIP": facts.pod_ip,
        "podIPs": [{"ip": facts.pod_ip}],
        "startTime": facts.started_at,
        "conditions": with_times(conditions_of(facts, phase, gate_values), conditions, now),
        "initContainerStatuses": [shown(view) for view in facts.inits],
        "containerStatuses": [shown(view) for view in facts.mains],
    }
