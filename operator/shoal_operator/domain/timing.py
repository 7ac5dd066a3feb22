"""First guesses of how long work takes: constants by (model shape, GPU type, GPUs a replica). Pure data.

    prefill_s = a + b*n + c*n*(p + n/2)          decode_s = alpha + beta*sqrt(B) + gamma*T

Routers start from them and learn better ones; the scaler's latency term uses them. A GPUPool's own `timing` wins.
Sources: Kimi-K2.5 and DeepSeek-V3 from least squares over a silicon model (mean error 2 to 7 %, for H200 int4 and B200
nvfp4 or fp8, no speculation); Llama-3-8B measured on one H200 with SGLang 0.5.17 (its decode is linear in the batch:
beta covers the first 64 requests). What is not here has no guess, and nothing is made up for it.
"""

from collections.abc import Mapping
from typing import Final

from shoal_api import routes
from shoal_operator.domain import values


def _from_ms(a: float, b: float, c: float, alpha: float, beta: float, gamma: float) -> routes.Timing:
    scale = 1e-3
    return routes.Timing(
        a_s=a * scale,
        b_s=b * scale,
        c_s=c * scale,
        alpha_s=alpha * scale,
        beta_s=beta * scale,
        gamma_s=gamma * scale,
    )


_K2_B200_8: Final = _from_ms(18.8, 0.01391, 3.281e-7, 4.27, 1.197, 5.434e-6)
_K2_B200_4: Final = _from_ms(25.2, 0.01550, 6.869e-7, 3.83, 1.892, 8.434e-6)
_K2_H200_8: Final = _from_ms(25.6, 0.04989, 3.443e-6, 4.18, 2.356, 1.600e-5)
_BUILTIN: Final[Mapping[tuple[str, str, int], routes.Timing]] = {
    ("kimi-k2", "B200", 8): _K2_B200_8,
    ("kimi-k2", "B200", 4): _K2_B200_4,
    ("kimi-k2", "H200", 8): _K2_H200_8,
    ("deepseek-v3", "B200", 8): _from_ms(22.9, 0.01825, 3.272e-7, 6.26, 1.328, 5.390e-6),
    ("llama-3-8b", "H200", 1): _from_ms(8.07, 0.0213, 9.13e-7, 4.659, 0.08, 2.883e-5),
}


def builtin(shape: values.Shape | None, gpu: str, gpus: int) -> routes.Timing | None:
    """The constants for a shape on so many GPUs of a type; None where there are none. B300 computes like B200."""
    if shape is None:
        return None
    family = shape.name.removesuffix("-vision")
    return _BUILTIN.get((family, "B200" if gpu == "B300" else gpu, gpus))
