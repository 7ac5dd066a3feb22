"""Credentials: in a Pod the ServiceAccount's, else a kubeconfig file's; for our client and for kopf's watches alike."""

import datetime
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubernetes.aio import client as kubernetes_client
from kubernetes.aio import config as kubernetes_config

TOKEN_LIFE = datetime.timedelta(minutes=5)
"""How long a ServiceAccount token is used before its file is read again; the kubelet renews it well before it ends."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a plain HTTP client needs; file paths, never copies of keys."""

    server: str
    ca_path: str | None = None
    ca_data: str | None = None
    certificate_path: str | None = None
    private_key_path: str | None = None
    scheme: str | None = None
    token: str | None = None
    verify: bool = True
    expires_at: datetime.datetime | None = None


async def load(kubeconfig: Path | None, context: str | None = None) -> Any:
    """A `kubernetes.aio` Configuration. ConfigException when there are no credentials."""
    configuration = kubernetes_client.Configuration()
    if kubeconfig is None and "KUBERNETES_SERVICE_HOST" in os.environ:
        kubernetes_config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
    else:
        path = str(kubeconfig) if kubeconfig is not None else None
        await kubernetes_config.load_kube_config(  # type: ignore[no-untyped-call]
            config_file=path, context=context, client_configuration=configuration, persist_config=False
        )
    # Many reconciles at once, yet far from what would trouble a small kube-apiserver.
    configuration.connection_pool_maxsize = 32
    configuration.client_session_kwargs = {"trust_env": False}
    return configuration


def transport(configuration: Any) -> Any:
    """The HTTP side of our client."""
    return kubernetes_client.ApiClient(configuration)


async def credentials(kubeconfig: Path | None, context: str | None = None) -> Credentials:
    """Fresh credentials for kopf, read again at every login."""
    configuration = await load(kubeconfig, context)
    scheme, _, token = (configuration.api_key.get("BearerToken") or "").partition(" ")
    in_cluster = kubeconfig is None and "KUBERNETES_SERVICE_HOST" in os.environ
    return Credentials(
        server=configuration.host,
        ca_path=configuration.ssl_ca_cert or None,
        ca_data=configuration.ca_cert_data or None,
        certificate_path=configuration.cert_file or None,
        private_key_path=configuration.key_file or None,
        scheme=scheme.capitalize() or None,
        token=token or None,
        verify=bool(configuration.verify_ssl),
        expires_at=datetime.datetime.now(datetime.UTC) + TOKEN_LIFE if in_cluster else None,
    )
