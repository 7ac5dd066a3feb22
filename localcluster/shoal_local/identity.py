"""The short name of a cluster: marks its processes and its folders in memory."""

import hashlib
from pathlib import Path


def cluster_id_of(folder: Path) -> str:
    """Twelve hex digits from the agent's folder, the same every time."""
    return hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:12]
