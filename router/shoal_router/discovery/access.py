"""How to reach kube-apiserver: the Pod's ServiceAccount, or a kubeconfig for use outside a Pod.

The ServiceAccount's token expires and is replaced on disk, so it is read again for every request.
"""

import base64
import os
import ssl
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
FOLDER_VARIABLE: Final = "SHOAL_VOLUME_VAR_RUN_SECRETS_KUBERNETES_IO_SERVICEACCOUNT"
"""Where that folder is when Pods are processes without mounts of their own; the local cluster sets it."""


@dataclass(frozen=True, slots=True)
class Access:
    server: str
    verify: ssl.SSLContext
    token_path: Path | None = None
    token: str | None = None

    def headers(self) -> dict[str, str]:
        token = self.token
        if self.token_path is not None:
            token = self.token_path.read_text().strip()
        return {"authorization": f"Bearer {token}"} if token else {}


def in_cluster() -> Access:
    """Raises OSError or KeyError where this process is not in a Pod with a ServiceAccount."""
    root = SERVICE_ACCOUNT if SERVICE_ACCOUNT.is_dir() else Path(os.environ.get(FOLDER_VARIABLE, SERVICE_ACCOUNT))
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    if ":" in host:
        host = f"[{host}]"
    context = ssl.create_default_context(cafile=str(root / "ca.crt"))
    return Access(f"https://{host}:{port}", context, token_path=root / "token")


def from_kubeconfig(path: Path) -> Access:
    """The current context of a kubeconfig with a CA and a client certificate or a token."""
    config = yaml.safe_load(path.read_text())
    context = _named(config["contexts"], config["current-context"])["context"]
    cluster = _named(config["clusters"], context["cluster"])["cluster"]
    user = _named(config["users"], context["user"])["user"]
    authority = _data(cluster, "certificate-authority", path)
    tls = ssl.create_default_context(cadata=authority.decode() if authority else None)
    certificate, key = _data(user, "client-certificate", path), _data(user, "client-key", path)
    if certificate and key:
        # ssl reads a certificate chain from files only.
        with tempfile.NamedTemporaryFile() as pair:
            pair.write(certificate + b"\n" + key)
            pair.flush()
            tls.load_cert_chain(pair.name)
    return Access(
        cluster["server"],
        tls,
        token_path=Path(user["tokenFile"]) if "tokenFile" in user else None,
        token=user.get("token"),
    )


def _named(items: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(item for item in items if item["name"] == name)


def _data(entry: dict[str, str], key: str, kubeconfig: Path) -> bytes | None:
    if f"{key}-data" in entry:
        return base64.b64decode(entry[f"{key}-data"])
    if key in entry:
        return (kubeconfig.parent / entry[key]).read_bytes()
    return None
