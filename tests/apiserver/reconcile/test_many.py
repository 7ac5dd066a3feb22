"""A hundred ModelServices at once: all of them come to their replicas, for a bounded number of writes each."""

import pytest

from shoal_api import keys
from shoal_api.routes import RouteTable
from shoal_testing.cluster import until
from shoal_testing.operatorprocess import Operator
from shoal_testing.stage import Place, Stage

pytestmark = [pytest.mark.apiserver, pytest.mark.slow, pytest.mark.timeout(300)]

COUNT = 100
WRITES_MAX = 12


def test_hundred_services_are_reconciled(place: Place, stage: Stage, operator_process: Operator) -> None:
    for _ in range(COUNT // 8 + 1):
        place.add_node()
    stage.held_back.add(place.namespace)
    before = operator_process.metric("shoal_operator_writes_total")
    try:
        for number in range(COUNT):
            place.service(f"m{number}", hardware=[{"gpu": place.gpu, "gpusPerReplica": 1}])
        until(lambda: len(place.sets()) == COUNT, "each has its replica", deadline_s=120, every_s=0.5)

        def routed() -> bool:
            stored = place.cluster.get("ConfigMap", keys.routes_config_map("default"), place.namespace)
            assert stored is not None
            return len(RouteTable.model_validate_json(stored["data"][keys.ROUTES_KEY]).services) == COUNT

        until(routed, "each is in the route table", deadline_s=60)

        def told() -> bool:
            items = place.cluster.list("ModelService", place.namespace)
            return all(one.get("status", {}).get("currentRevision") for one in items)

        until(told, "each says its revision", deadline_s=60)
        assert operator_process.metric("shoal_operator_reconcile_total", result="failed") < COUNT
        assert operator_process.metric("shoal_operator_writes_total") - before <= WRITES_MAX * COUNT
    finally:
        stage.held_back.discard(place.namespace)
