"""Routers' reports for tests of the scaler: a `/state` of one service, from the figures that a test is about."""

from typing import Any

from shoal_api import routes, state
from shoal_operator.domain import demand, scaling, values

TIMING = routes.Timing(a_s=0.02, b_s=1e-4, c_s=0, alpha_s=0.01, beta_s=0.001, gamma_s=1e-8)


def report(
    *,
    work_s: float = 0.0,
    queued_tokens: int = 0,
    rate: float | None = 0.0,
    work_per_request_s: float | None = 0.1,
    in_flight: int = 0,
    in_flight_tokens: int = 0,
    kv_tokens_max: int | None = 1_000_000,
    hot_tokens: int = 0,
    requests_total: int = 100,
    replicas: int = 1,
    instance: str = "router-0",
    uptime_s: float = 10_000.0,
    age_s: float = 0.5,
) -> demand.Report:
    """One router's answer; `in_flight` and `in_flight_tokens` are spread over `replicas`."""
    share = max(1, replicas)
    found = state.ServiceState(
        name="m",
        queue=state.QueueState(work_s=work_s, prompt_tokens=queued_tokens),
        rate=state.RateState(
            requests_per_s=None if rate is None else (rate, rate, rate), work_per_request_s=work_per_request_s
        ),
        requests_total=requests_total,
        replicas=tuple(
            state.ReplicaState(
                name=f"m-{number}",
                state="Routable",
                in_flight_requests=in_flight // share,
                in_flight_tokens=in_flight_tokens // share,
                kv_tokens_max=kv_tokens_max,
                unique_hot_tokens=hot_tokens,
            )
            for number in range(replicas)
        ),
    )
    return demand.Report(instance, found, uptime_s, age_s)


def inputs(now_s: float, desired: int, *reports: demand.Report, **more: Any) -> scaling.Inputs:
    """A decision's inputs with everything ready and a window of 100 s."""
    given: dict[str, Any] = {
        "scaling": values.Scaling(min=1, max=10, ttft_slo_s=5.0, itl_slo_s=None, window_s=100.0, starts_max=4),
        "supply": scaling.Supply(ready=desired),
        "cold_start_s": 60.0,
        "timing": TIMING,
    }
    given.update(more)
    return scaling.Inputs(now_s=now_s, reports=reports, desired=desired, **given)
