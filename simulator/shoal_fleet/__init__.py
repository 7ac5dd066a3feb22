"""A whole fleet in virtual time: the simulator's engines behind the router's production policy, scaled by the
operator's production scaler.

No I/O, no sleeping, no wall clock: an hour of eight replicas takes seconds, and the same seed gives the same run.

    workload   jobs, conversations and arrivals as values; prefix  their hashes, for engines and for the router
    clock      virtual time                                engine  one engine: shoal_sim's scheduler and radix cache
    policies   who routes: production, and models of peers  clients open and closed loop, with retries
    fleet      engines, policy and requests in flight       autoscale  replicas that come and go by the scaler's word
    run        a scenario from start to end                 results  what came of it

Used by `shoal simulate`, by benchmarks and by tests.
"""
