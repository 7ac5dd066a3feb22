"""Kubeconfig files with everything embedded, so that one file is all a client needs."""

import base64
import os
from pathlib import Path
from typing import Any

import yaml

from shoal_local.pki import Pair


def _encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def render_kubeconfig(server: str, authority: Path, client: Pair, user: str) -> dict[str, Any]:
    """The content of a kubeconfig with one cluster, one user, one context."""
    cluster = {"server": server, "certificate-authority-data": _encoded(authority)}
    credentials = {"client-certificate-data": _encoded(client.certificate), "client-key-data": _encoded(client.key)}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "shoal-local", "cluster": cluster}],
        "users": [{"name": user, "user": credentials}],
        "contexts": [{"name": "shoal-local", "context": {"cluster": "shoal-local", "user": user}}],
        "current-context": "shoal-local",
    }


def write_kubeconfig(path: Path, server: str, authority: Path, client: Pair, user: str) -> Path:
    """Writes the file, readable by its owner only, and returns its path."""
    content = yaml.safe_dump(render_kubeconfig(server, authority, client, user), sort_keys=False)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(content)
    return path
