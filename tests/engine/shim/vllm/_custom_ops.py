"""The three operators of SGLang's generic path, in plain torch: rotary embedding and two RMS norms, in place."""

import torch


def _rms(values, weight, eps):
    return values * torch.rsqrt(values.pow(2).mean(-1, keepdim=True) + eps) * weight.float()


def rotary_embedding(positions, query, key, head_size, cos_sin_cache, is_neox):
    """Rotates query and key, both (tokens, heads * head_size), by neox halves."""
    cos, sin = (t.unsqueeze(1) for t in cos_sin_cache.index_select(0, positions.flatten()).float().chunk(2, dim=-1))
    for tensor in (query, key):
        heads = tensor.view(positions.numel(), -1, head_size)
        first, second = heads.float().chunk(2, dim=-1)
        heads.copy_(torch.cat((first * cos - second * sin, second * cos + first * sin), -1).to(heads.dtype))


def rms_norm(out, x, weight, eps):
    out.copy_(_rms(x.float(), weight, eps).to(x.dtype))


def fused_add_rms_norm(x, residual, weight, eps):
    residual.add_(x)
    x.copy_(_rms(residual.float(), weight, eps).to(x.dtype))
