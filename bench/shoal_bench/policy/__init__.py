"""The policy in virtual time: the routing study's table with production code, constants swept, a cross-check.

`make bench-policy`; results in docs/benchmarks/policy.json and policy.md.
"""
