"""Decisions of the operator: pure functions over frozen values, no clocks, no I/O, no Kubernetes client.

What the reconciler calls, in its order (`values`, `fleet`, `scaling` hold the types):

    resolve.resolve_service(name, namespace, spec, pools, drafts)    -> resolve.Resolution (service or problems)
    sglang.accept.accept(service)                    -> checks.Findings (refusals, warnings, fits by profile or None)
    revision.current(service, pinned_hash, pinned_version)           -> revision.Revision (hash, short, render_version)
    revision.snapshot(service) / revision.restore(data)              -> JSON for a ControllerRevision, and back
    scaling.decide(inputs, memory)                                   -> (scaling.Decision, scaling.Memory)
    rollout.plan_steps(fleet.Fleet)                                  -> fleet.Plan (steps, hold, complete)
    naming.replica_name(service, short, number), naming.pod_name(...), naming.router_*(...)

`render.engine.render_replica(...)`, `render.bundle.*` and `render.routes.render_table(...)` turn the results into
manifests. Nothing here remembers anything between calls: what must be remembered (`scaling.Memory`, the pinned render
version) is a value that the caller keeps.
"""
