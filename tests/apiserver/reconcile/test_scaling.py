"""The replica count follows the routers' figures; without figures it stays."""

from typing import Any

import pytest

from shoal_testing.cluster import until
from shoal_testing.operatorprocess import Operator
from shoal_testing.stage import Place

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(240), pytest.mark.usefixtures("operator_process")]

DECISIONS = 10
"""A tick of half a second makes one, so that these are more than the window below."""
FAST: dict[str, Any] = {"min": 1, "max": 3, "behavior": {"scaleDownWindow": "2s"}}


def figures(work_s: float, rate: float = 1.0) -> dict[str, Any]:
    """Queue and rate of a service: seconds of work waiting, requests a second of a tenth of a second each."""
    return {
        "queue": {"requests": 10, "work_s": work_s, "prompt_tokens": 0},
        "rate": {"requests_per_s": [rate, rate, rate], "work_per_request_s": 0.1},
        "requests_total": 100,
        "last_request_age_s": 0.1,
    }


def test_backlog_scales_out_and_its_end_scales_in(place: Place, operator_process: Operator) -> None:
    place.add_node()
    place.traffic.service = figures(0.0)
    place.service(scaling=FAST)
    place.ready(1)
    place.traffic.service = figures(work_s=14.0)
    until(lambda: place.status()["replicas"]["desired"] == 3, "the backlog asks for three")
    status = place.ready(3)
    newest = status["scaling"]["history"][0]
    assert (newest["from"], newest["to"], newest["reason"]) == (1, 3, "Backlog")
    assert newest["inputs"]["queuedWorkSeconds"] == 14.0
    assert place.condition("ScalingActive")["status"] == "True"
    place.traffic.service = figures(0.0)
    until(lambda: len(place.sets()) == 1, "one at a time down to one")
    status = place.ready(1)
    assert [(one["from"], one["to"]) for one in status["scaling"]["history"]] == [(2, 1), (3, 2), (1, 3)]
    assert operator_process.metric("shoal_operator_scale_decision_total", direction="up", reason="Backlog") >= 1
    events = {one["reason"] for one in place.cluster.list("Event", place.namespace)}
    assert {"Backlog", "LoadFell"} <= events


def test_silent_routers_hold_the_count(place: Place, operator_process: Operator) -> None:
    def held() -> float:
        return operator_process.metric("shoal_operator_scale_decision_total", direction="hold", reason="MetricsMissing")

    place.traffic.service = figures(0.0)
    place.service(scaling={**FAST, "min": 2})
    place.ready(2)
    until(lambda: place.condition("ScalingActive").get("status") == "True", "routers are heard")
    place.traffic.dead = True
    until(lambda: place.condition("ScalingActive").get("reason") == "MetricsMissing", "silence is seen")
    place.patch(scaling={"min": 1})
    before = held()
    until(lambda: held() >= before + DECISIONS or len(place.sets()) != 2, "decisions without figures")
    assert len(place.sets()) == 2
    assert place.status()["replicas"]["desired"] == 2
