"""How long a step takes: one function for the engine process and for the fleet simulator in virtual time."""

from shoal_sim.batch import Batch
from shoal_sim.profiles import Profile
from shoal_sim.speculation import Speculation


def step_s(profile: Profile, batch: Batch, speculation: Speculation | None = None) -> float:
    """Seconds that the step takes on the modelled hardware."""
    drafts = (speculation.draft_steps, speculation.draft_tokens) if speculation else (0, 1)
    decode_s = profile.decode_s(len(batch.decode), batch.decode_kv_tokens, *drafts) if batch.decode else 0.0
    if not batch.prefill:
        return decode_s
    prefill_s = profile.prefill_s([(piece.tokens, piece.prefix) for piece in batch.prefill])
    # In a mixed step the weights are read once, for both.
    return prefill_s + max(0.0, decode_s - profile.decode.base_s)
