"""How long a step takes: one function for the engine process and for the fleet simulator in virtual time."""

from shoal_sim.batch import Batch
from shoal_sim.profiles import Profile
from shoal_sim.speculation import Speculation


def step_s(profile: Profile, batch: Batch, speculation: Speculation | None = None, *, prepared: bool = True) -> float:
    """Seconds that the step takes on the modelled hardware. `prepared`: while another ran."""
    drafts = (speculation.draft_steps, speculation.draft_tokens) if speculation else (0, 1)
    decode_s = profile.decode_s(len(batch.decode), batch.decode_kv_tokens, *drafts) if batch.decode else 0.0
    if not batch.prefill:
        return decode_s
    prefill_s = profile.prefill_s([(piece.tokens, piece.prefix) for piece in batch.prefill])
    if not prepared:
        prefill_s += profile.prefill.prepare_s
    # A mixed step was measured to take as long as both (the weights are read once, but decode leaves its graph).
    return prefill_s + decode_s
