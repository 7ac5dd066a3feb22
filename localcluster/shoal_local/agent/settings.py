"""Settings of the node agent. Written by whoever starts it (supervisor, tests), read by `__main__`."""

from pathlib import Path

import pydantic


class Settings(pydantic.BaseModel):
    """The agent's settings file, written by whoever starts the agent (supervisor, tests)."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)

    folder: Path
    """Everything of the agent lies here; the same folder is the same cluster."""
    kubeconfig: Path
    pki: Path
    images: Path
    nodes: Path | None = None
    kubernetes_version: str = "v1.37.2"
    kubelet_port: int = 10250
    backoff_base_s: float = pydantic.Field(default=10.0, gt=0)
    backoff_max_s: float = pydantic.Field(default=300.0, gt=0)
    lease_period_s: float = pydantic.Field(default=10.0, gt=0)
    refresh_period_s: float = pydantic.Field(default=10.0, gt=0)
    balancer_ports: dict[int, int] = pydantic.Field(default_factory=dict)
    """Service port -> first local port to try for Services of type LoadBalancer; others start at their own."""

    @property
    def ready_file(self) -> Path:
        """JSON with the agent's process id and what the machine allows, once its nodes are registered."""
        return self.folder / "ready"
