"""Names by which the parts of one cluster know each other: its id, its folders in memory, its marks.

Imports next to nothing: the command line uses it without loading the agent.
"""

import hashlib
from pathlib import Path
from typing import Final

CLUSTER_VARIABLE: Final = "SHOAL_LOCAL_CLUSTER"
"""Set in every container to the cluster's id: lets a cluster find processes that it has left behind."""
ADDRESS_ANNOTATION: Final = "shoal.dev/local-address"
"""On Services of type LoadBalancer: `host:port` of each port, in order, separated by commas. The node agent writes it;
`shoal local status` and `shoal demo` read it."""
_SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108


def cluster_id_of(folder: Path) -> str:
    """Twelve hex digits from the agent's folder, the same every time."""
    return hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:12]


def memory_root(cluster_id: str) -> Path:
    """Folder in memory of one cluster, for emptyDirs with medium Memory; one folder a Pod below it."""
    return _SHARED_MEMORY / f"shoal-local-{cluster_id}"
