"""Objects of Shoal's kinds for tests: a smallest valid one of each, and a thin client that sends them as they are.

The client returns the kube-apiserver's own answer, refusals included, because tests read its messages.
"""

import base64
import copy
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

Object = dict[str, Any]

_PLURALS = {
    "ModelService": "modelservices",
    "GPUPool": "gpupools",
    "Router": "routers",
    "DraftModel": "draftmodels",
}
_SMALLEST: dict[str, Object] = {
    "ModelService": {
        "model": {"source": "hf://acme/coder", "servedName": "coder"},
        "hardware": [{"gpu": "B200", "gpusPerReplica": 8}],
    },
    "GPUPool": {
        "gpu": "B200",
        "architecture": "sm100",
        "memory": "179Gi",
        "nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-B200"},
        "gpusPerNode": 8,
    },
    "Router": {},
    "DraftModel": {
        "target": {"source": "hf://acme/coder"},
        "algorithm": "EAGLE3",
        "source": "hf://acme/coder-eagle3",
    },
}


def smallest(kind: str, name: str = "sample", namespace: str = "default") -> Object:
    """The smallest object of a kind that the kube-apiserver takes."""
    metadata = {"name": name} if kind == "GPUPool" else {"name": name, "namespace": namespace}
    return {
        "apiVersion": "shoal.dev/v1alpha1",
        "kind": kind,
        "metadata": metadata,
        "spec": copy.deepcopy(_SMALLEST[kind]),
    }


def patched(document: Object, patch: Mapping[str, Any]) -> Object:
    """A copy with a JSON merge patch applied: maps merge, null removes, everything else replaces."""
    result = copy.deepcopy(document)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, Mapping) and isinstance(result.get(key), dict):
            result[key] = patched(result[key], value)
        else:
            result[key] = copy.deepcopy(value)
    return result


@dataclass(frozen=True)
class Api:
    """Requests for Shoal's kinds; every answer is returned, whatever its status."""

    client: httpx.Client

    def create(self, document: Object, *, dry_run: bool = False) -> httpx.Response:
        return self.client.post(_path(document, named=False), json=document, params=_parameters(dry_run))

    def replace(self, document: Object, *, dry_run: bool = False) -> httpx.Response:
        return self.client.put(_path(document), json=document, params=_parameters(dry_run))

    def patch(self, document: Object, patch: Mapping[str, Any], *, subresource: str = "") -> httpx.Response:
        headers = {"content-type": "application/merge-patch+json"}
        return self.client.patch(_path(document) + subresource, json=patch, headers=headers, params=_parameters(False))

    def read(self, document: Object, *, subresource: str = "") -> httpx.Response:
        return self.client.get(_path(document) + subresource)

    def delete(self, document: Object) -> httpx.Response:
        return self.client.delete(_path(document))


def _parameters(dry_run: bool) -> dict[str, str]:
    return {"fieldValidation": "Strict", **({"dryRun": "All"} if dry_run else {})}


def _path(document: Object, *, named: bool = True) -> str:
    metadata = document["metadata"]
    where = f"/namespaces/{metadata['namespace']}" if "namespace" in metadata else ""
    tail = f"/{metadata['name']}" if named else ""
    return f"/apis/shoal.dev/v1alpha1{where}/{_PLURALS[document['kind']]}{tail}"


@contextmanager
def api(kubeconfig: Path, scratch: Path) -> Iterator[Api]:
    """A client as the kubeconfig's user; certificates are unpacked into `scratch`."""
    config = yaml.safe_load(kubeconfig.read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    files = {}
    for name, data in (
        ("ca", cluster["certificate-authority-data"]),
        ("crt", user["client-certificate-data"]),
        ("key", user["client-key-data"]),
    ):
        files[name] = scratch / f"client.{name}"
        files[name].write_bytes(base64.b64decode(data))
    context = ssl.create_default_context(cafile=str(files["ca"]))
    context.load_cert_chain(files["crt"], files["key"])
    with httpx.Client(base_url=cluster["server"], verify=context, timeout=20.0) as client:
        yield Api(client)
