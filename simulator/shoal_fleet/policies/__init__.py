"""Who decides where a request goes: the router's production core, and models of what other routers do.

`protocol` is what the fleet asks of each; `production` wraps `shoal_router.admission.core` and `shoal_router.policy`
as they are; `greedy` uses the same pool without queue and price; `peers` are models; `registry` names them all.
"""
