"""The route table that routers get: what it says of a service, and when it is another generation."""

from shoal_api.router import RouterSpec
from shoal_operator.reconcile import routetable
from shoal_testing import services


def test_a_known_shape_tells_which_token_ids_exist() -> None:
    service = services.service("kimi-nvfp4")
    entry = routetable.entry(service, revision="aaaaaaaa", draining=(), first_on_its_way=False)
    assert entry.vocab_size == 163840
    assert entry.served_name == service.served_name


def test_equal_tables_are_one_generation_and_a_drain_is_another() -> None:
    service = services.service("quickstart")
    calm = routetable.entry(service, revision="aaaaaaaa", draining=(), first_on_its_way=False)
    drains = routetable.entry(service, revision="aaaaaaaa", draining=("m-aaaaaaaa-0",), first_on_its_way=False)
    spec = RouterSpec()
    assert routetable.table(spec, [calm]) == routetable.table(spec, [calm])
    assert routetable.table(spec, [calm]).generation != routetable.table(spec, [drains]).generation
