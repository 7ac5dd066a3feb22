"""Python runs this at start-up: stand-ins for the CUDA calls that SGLang makes without asking whether there is a GPU.

Only with TRITON_INTERPRET=1 and without a GPU. The scheduler, the cache and the HTTP surface stay as they are.
"""

import os


class _Event:
    """torch.cuda.Event on a machine where everything is done when the call returns."""

    def __init__(self, *args, **kwargs):
        pass

    def record(self, *args, **kwargs):
        pass

    def synchronize(self):
        pass

    def wait(self, *args, **kwargs):
        pass

    def query(self):
        return True

    def elapsed_time(self, other):
        return 0.0


class _Stream:
    device = None
    cuda_stream = 0

    def synchronize(self):
        pass

    def wait_stream(self, other):
        pass

    def wait_event(self, event):
        pass

    def query(self):
        return True

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        return False


class _Cudart:
    """The three runtime calls that pin host memory: there is nothing to pin for."""

    class cudaError:  # noqa: N801
        success = 0

    def cudaHostRegister(self, *args):
        return 0

    def cudaHostUnregister(self, *args):
        return 0

    def cudaGetErrorString(self, code):
        return "ok"


def _without_pinning(make):
    def made(*args, pin_memory=False, **kwargs):
        return make(*args, **kwargs)

    made.__name__ = getattr(make, "__name__", "made")
    return made


def _install(torch):
    for name in (
        "full",
        "empty",
        "zeros",
        "ones",
        "tensor",
        "arange",
        "empty_like",
        "zeros_like",
        "full_like",
        "empty_strided",
    ):
        setattr(torch, name, _without_pinning(getattr(torch, name)))
    torch.Tensor.pin_memory = lambda self, *args, **kwargs: self
    torch.cuda.Event = _Event
    torch.cuda.cudart = _Cudart
    torch.cuda.check_error = lambda *args: None
    torch.cuda.current_stream = lambda *args, **kwargs: _Stream()
    torch.cuda.synchronize = lambda *args, **kwargs: None
    if torch.version.cuda is None:  # the CUDA build of torchvision registers its own operators
        library = torch.library.Library("torchvision", "FRAGMENT")
        library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        torch._shoal_torchvision_library = library  # a Library undoes its definitions when it is collected


if os.environ.get("TRITON_INTERPRET") == "1":
    try:
        import torch
    except ImportError:  # a Python process of the environment that needs no torch, pip for example
        torch = None
    if torch is not None and not torch.cuda.is_available():
        _install(torch)
