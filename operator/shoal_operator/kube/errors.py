"""What can go wrong with a request to kube-apiserver, in the terms that reconcilers act on."""


class KubeError(Exception):
    """A request failed. `status` is the HTTP status, 0 when there was no answer at all."""

    def __init__(self, message: str, *, status: int = 0, reason: str = "", retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.reason = reason
        self.retry_after_s = retry_after_s


class NotFoundError(KubeError):
    """404: the object is gone, or never was."""


class ConflictError(KubeError):
    """409: another writer was faster, an object of that name exists, or another manager owns a field we apply."""


class ForbiddenError(KubeError):
    """403: RBAC, quota or admission says no."""


class InvalidError(KubeError):
    """400 or 422: the API refuses the object as it is; repeating the request changes nothing."""


class ThrottledError(KubeError):
    """429: too many requests; `retry_after_s` is what the server asks for."""


class UnavailableError(KubeError):
    """No connection, a timeout, or a 5xx: nothing is known about the outcome."""


class NotLeadingError(KubeError):
    """A write was attempted while this process does not hold the Lease; nothing was sent."""


_BY_STATUS = {
    400: InvalidError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    422: InvalidError,
    429: ThrottledError,
}


def from_status(status: int, reason: str, message: str, retry_after_s: float | None = None) -> KubeError:
    """The error for an HTTP answer of 400 and above."""
    kind = UnavailableError if status >= 500 else _BY_STATUS.get(status, KubeError)
    return kind(message, status=status, reason=reason, retry_after_s=retry_after_s)
