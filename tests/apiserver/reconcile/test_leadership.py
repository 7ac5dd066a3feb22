"""Two operators: one leads, and the other takes over."""

import signal
import uuid

import pytest

from shoal_testing import operatorprocess
from shoal_testing.cluster import until
from shoal_testing.operatorprocess import NAMESPACE
from shoal_testing.stage import Place, Stage

pytestmark = [pytest.mark.apiserver, pytest.mark.slow, pytest.mark.timeout(240)]


def test_killed_leader_is_replaced_and_work_goes_on(
    place: Place, stage: Stage, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Also: the one that waits makes nothing, and a leader that is stopped and woken again leads no more."""
    folder = tmp_path_factory.mktemp("pair")
    lease = ("--lease-name", f"lease-{uuid.uuid4().hex[:6]}", "--watch-namespace", place.namespace)
    with (
        operatorprocess.operator(stage.operator_kubeconfig, folder, "one", *lease) as one,
        operatorprocess.operator(stage.operator_kubeconfig, folder, "two", *lease) as two,
    ):
        until(lambda: one.leading != two.leading, "exactly one leads")
        leader, standby = (one, two) if one.leading else (two, one)
        place.service(replicas=1)
        place.ready(1)
        assert standby.metric("shoal_operator_writes_total") == 0
        assert standby.alive()
        leader.process.send_signal(signal.SIGSTOP)
        try:
            until(lambda: standby.leading, "the other takes over")
            place.patch(replicas=2)
            place.ready(2)
        finally:
            leader.process.send_signal(signal.SIGCONT)
        until(lambda: leader.alive() and not leader.leading, "the woken one knows that it does not lead")
        standby.process.terminate()
        standby.process.wait(15)
        until(lambda: leader.leading, "a Lease that was given back is taken at once")
        item = stage.cluster.get("Lease", lease[1], NAMESPACE)
        assert item is not None
        assert item["spec"]["leaseTransitions"] >= 2
