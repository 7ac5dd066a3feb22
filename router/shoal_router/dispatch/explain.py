"""Headers of `x-shoal-explain: 1`: where a request went and why. Pure; called by dispatch.exchange."""

from shoal_router import model
from shoal_router.policy.binding import Binding
from shoal_router.upstream.connection import Headers


def headers(binding: Binding, terms: model.CostTerms | None) -> Headers:
    """`terms` are those that the choice saw; None where the replica was no candidate then."""
    found = [
        (b"x-shoal-replica", binding.replica.name.encode()),
        (b"x-shoal-attempt", b"%d" % (binding.attempt + 1)),
        (b"x-shoal-queue-ms", b"%.1f" % (binding.queued_s * 1e3)),
        (b"x-shoal-prompt-tokens", b"%d" % binding.prompt_tokens),
        (b"x-shoal-matched-tokens", b"%d" % binding.matched_tokens),
        (b"x-shoal-cost-ms", b"%.1f" % (binding.cost_s * 1e3)),
    ]
    sliced = binding.sliced
    if sliced is not None:
        added_s = sliced.delayed_s + sliced.added_s
        found.append((b"x-shoal-slices", b"%d" % sliced.count))
        found.append((b"x-shoal-slices-added-ms", b"%.1f" % (added_s * 1e3)))
    if terms is not None:
        parts = (
            ("busy", terms.busy_s),
            ("work", terms.work_s),
            ("interference", terms.interference_s),
            ("kv_pressure", terms.kv_pressure_s),
        )
        text = ", ".join(f"{label}={value * 1e3:.1f}" for label, value in parts)
        found.append((b"x-shoal-cost-terms-ms", f"{text}, price={terms.price:.2f}".encode()))
    return found
