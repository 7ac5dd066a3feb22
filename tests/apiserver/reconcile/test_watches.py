"""A kube-apiserver that goes and comes back. Last in this folder: Kubernetes' own controllers need time after it."""

import pytest

from shoal_local.controlplane import ControlPlane
from shoal_testing.cluster import until
from shoal_testing.operatorprocess import Operator
from shoal_testing.stage import Place

pytestmark = [pytest.mark.apiserver, pytest.mark.slow, pytest.mark.timeout(240)]


def test_recovers_within_seconds_of_kube_apiserver(
    place: Place, control_plane: ControlPlane, operator_process: Operator
) -> None:
    place.service(replicas=1)
    place.ready(1)
    kept = place.set_names()
    control_plane.stop_apiserver()
    try:
        until(lambda: operator_process.metric("shoal_operator_watch_restarts_total") > 0, "watches break")
        until(lambda: not operator_process.leading, "it stops leading by its own clock")
        assert operator_process.alive(), "a liveness probe must not kill it for that"
    finally:
        control_plane.start_apiserver()
    until(lambda: operator_process.leading, "it leads again")
    place.patch(replicas=2)
    # Their Pods take longer: Kubernetes' own controllers come back more slowly than we do.
    until(lambda: len(place.sets()) == 2, "a change is carried out")
    assert kept <= place.set_names()
