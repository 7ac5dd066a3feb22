"""kopf's settings: it watches for us and does nothing else. No finalizer, no annotation, no event of its own."""

import kopf

from shoal_operator.kube.connection import Credentials

ERROR_BACKOFFS_S = (0.2, 0.5, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0)
"""Short, because a request that is being retried does not notice that kube-apiserver is back."""


def settings() -> kopf.OperatorSettings:
    """Fresh settings for one run of kopf."""
    found = kopf.OperatorSettings()
    found.watching.server_timeout = 300
    found.watching.client_timeout = 330
    found.watching.connect_timeout = 3
    found.watching.inactivity_timeout = 70
    found.watching.chunk_size = 500
    found.networking.request_timeout = 20
    found.networking.connect_timeout = 3
    found.networking.error_backoffs = ERROR_BACKOFFS_S
    found.networking.enforce_retry_after = True
    found.posting.enabled = False
    found.peering.standalone = True
    # Never written while there are only on.event handlers; named so that a mistake would show whose it is.
    found.persistence.finalizer = "shoal.dev/finalizer"
    found.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix="shoal.dev")
    found.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix="shoal.dev")
    found.process.ultimate_exiting_timeout = None
    found.queueing.idle_timeout = 1.0
    return found


def connection(credentials: Credentials) -> kopf.ConnectionInfo:
    """Our credentials in kopf's terms."""
    return kopf.ConnectionInfo(
        server=credentials.server,
        ca_path=credentials.ca_path,
        ca_data=credentials.ca_data,
        insecure=not credentials.verify,
        scheme=credentials.scheme,
        token=credentials.token,
        certificate_path=credentials.certificate_path,
        private_key_path=credentials.private_key_path,
        expiration=credentials.expires_at,
    )
