"""Names of everything the operator makes, within Kubernetes' limits. Pure; render and reconcile call it.

A replica's StatefulSet is `<service>-<revision8>-<n>` and its Pod adds `-0`; the Pod's host name and the labels that
hold these names may have 63 characters, and a StatefulSet's Pods carry its name plus an eleven character hash in label
`controller-revision-hash`. A service name that would make a name too long is cut and gets a hash of the whole, so two
long names never meet in one.
"""

import hashlib

NAME_CHARS_MAX = 52
"""63 for a label value, less `-` and the ten characters of the StatefulSet controller's own revision hash."""
_HASH_CHARS = 8


def shortened(text: str, chars_max: int) -> str:
    """The text if it is short enough; else its beginning and a hash of the whole, still a DNS label."""
    if len(text) <= chars_max:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:_HASH_CHARS]
    return f"{text[: chars_max - _HASH_CHARS - 1].rstrip('-')}-{digest}"


def replica_name(service: str, revision8: str, number: int) -> str:
    """StatefulSet, headless Service and label value of one replica."""
    tail = f"-{revision8}-{number}"
    return f"{shortened(service, NAME_CHARS_MAX - len(tail))}{tail}"


def pod_name(replica: str) -> str:
    """The one Pod of a replica's StatefulSet."""
    return f"{replica}-0"


def budget_name(service: str) -> str:
    """PodDisruptionBudget of a service's engines."""
    return shortened(f"{service}-engines", 63)


def router_name(router: str) -> str:
    """Deployment, Service, ServiceAccount, Role, RoleBinding and budget of one Router."""
    return shortened(f"shoal-router-{router}", 63)


def revision_name(service: str, revision8: str) -> str:
    """ControllerRevision that records one revision of a service."""
    return shortened(f"{service}-revision-{revision8}", 63)
