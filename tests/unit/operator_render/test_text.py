"""What `shoal plan` and `shoal fit` print."""

from shoal_operator.domain import fleet, naming, revision
from shoal_operator.render import engine, text
from shoal_operator.sglang import accept
from shoal_testing import services


def test_plan_shows_command_and_steps() -> None:
    service = services.service("quickstart")
    current = revision.current(service, None, None)
    old = fleet.Replica(
        naming.replica_name("m", "aaaaaaaa", 0), 0, "aaaaaaaa", "B200", fleet.Phase.READY, True, age_s=9999
    )
    shown = text.plan_text(service, current, fleet.Fleet(current.short, 1, (old,), {"B200": 1}))
    assert "--model-path /models/tiny-llama" in shown
    assert f"1. create replica 0 of {current.short} on B200" in shown
    assert "drain m-aaaaaaaa-0 (Outdated)" in shown
    assert shown.rstrip().endswith("done")


def test_plan_says_how_requests_are_routed() -> None:
    for spec, want in (({}, "slicing Auto"), ({"routing": {"slicing": "Off"}}, "slicing Off")):
        service = services.service("quickstart", **spec)
        current = revision.current(service, None, None)
        shown = text.plan_text(service, current, fleet.Fleet(current.short, 1, (), {"B200": 1}))
        assert f"routing: affinity Auto, {want}" in shown


def test_plan_shows_the_name_of_a_secret_and_never_its_value() -> None:
    variables = [{"name": "HF_TOKEN", "secret": {"name": "hub", "key": "token"}}]
    service = services.service("quickstart", engine={"env": variables})
    current = revision.current(service, None, None)
    shown = text.plan_text(service, current, fleet.Fleet(current.short, 1, (), {"B200": 1}))
    assert "HF_TOKEN='<token of Secret hub>'" in shown
    stateful_set = engine.render_replica(service, current, 0, service.profiles[0])[1]
    container = stateful_set["spec"]["template"]["spec"]["containers"][0]
    source = {"secretKeyRef": {"name": "hub", "key": "token"}}
    assert {"name": "HF_TOKEN", "valueFrom": source} in container["env"]


def test_plan_shows_what_holds() -> None:
    service = services.service("quickstart")
    current = revision.current(service, None, None)
    shown = text.plan_text(service, current, fleet.Fleet(current.short, 2, (), {"B200": 1}))
    assert "hold NoSpareGPU" in shown


def test_fit_shows_figures_and_problems() -> None:
    service = services.service("kimi-nvfp4")
    shown = text.fit_text(service, accept.accept(service))
    assert "4 x B300: fits" in shown
    assert "8 x B200: fits" in shown
    assert "KV tokens a replica" in shown
    model = {**services.CASES["kimi-nvfp4"]["model"], "quantization": "bf16"}
    big = services.service("kimi-nvfp4", model=model)
    shown = text.fit_text(big, accept.accept(big))
    assert "does not fit" in shown
    assert "refused:" in shown
