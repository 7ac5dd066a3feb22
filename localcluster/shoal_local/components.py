"""The argv of each control plane component: pure functions of where files lie and which ports are used.

`controlplane` starts what these return. Every flag that is not obvious says why it is there.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from shoal_local.pki import Pair

SERVICE_RANGE = "10.0.0.0/16"
APISERVER_NAMES = (
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
    "127.0.0.1",
    "10.0.0.1",
)

_CONTROLLERS_OFF = (
    # slices refuse loopback addresses, so these three would only fail and retry for ever
    "endpoints-controller",
    "endpointslice-controller",
    "endpointslice-mirroring-controller",
    # nothing attaches volumes or hands out Pod ranges here
    "persistentvolume-attach-detach-controller",
    "node-ipam-controller",
)


@dataclass(frozen=True, slots=True)
class Ports:
    """One free port for each listener, all on 127.0.0.1."""

    etcd: int
    etcd_peer: int
    apiserver: int
    controller_manager: int
    scheduler: int


@dataclass(frozen=True, slots=True)
class Files:
    """Paths that the flags name."""

    data: Path
    authority: Pair
    front_proxy_authority: Pair
    front_proxy_client: Pair
    apiserver: Pair
    kubelet_client: Pair
    service_account: Pair
    controller_manager_config: Path
    scheduler_config: Path


@dataclass(frozen=True, slots=True)
class Tuning:
    """What a caller may set apart; the defaults suit a laptop."""

    node_monitor_grace_s: int = 40
    apiserver_args: tuple[str, ...] = ()


def etcd_argv(binary: Path, ports: Ports, files: Files) -> list[str]:
    """Data is thrown away with the folder, so no write waits for the disk."""
    client, peer = f"http://127.0.0.1:{ports.etcd}", f"http://127.0.0.1:{ports.etcd_peer}"
    return [
        str(binary),
        "--name=n0",
        f"--data-dir={files.data}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=n0={peer}",
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]


def apiserver_argv(binary: Path, ports: Ports, files: Files, extra: Sequence[str] = ()) -> list[str]:
    """kube-apiserver on loopback with Node and RBAC authorization."""
    return [
        str(binary),
        f"--etcd-servers=http://127.0.0.1:{ports.etcd}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        f"--secure-port={ports.apiserver}",
        "--endpoint-reconciler-type=none",  # endpoints refuse loopback addresses
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        "--allow-privileged=true",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        f"--tls-cert-file={files.apiserver.certificate}",
        f"--tls-private-key-file={files.apiserver.key}",
        f"--client-ca-file={files.authority.certificate}",
        "--service-account-issuer=https://kubernetes.default.svc",
        "--api-audiences=https://kubernetes.default.svc",
        f"--service-account-key-file={files.service_account.certificate}",
        f"--service-account-signing-key-file={files.service_account.key}",
        f"--requestheader-client-ca-file={files.front_proxy_authority.certificate}",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={files.front_proxy_client.certificate}",
        f"--proxy-client-key-file={files.front_proxy_client.key}",
        f"--kubelet-certificate-authority={files.authority.certificate}",
        f"--kubelet-client-certificate={files.kubelet_client.certificate}",
        f"--kubelet-client-key={files.kubelet_client.key}",
        "--kubelet-preferred-address-types=InternalIP",
        "--profiling=false",
        *extra,
    ]


def _client_argv(config: Path, port: int) -> list[str]:
    return [
        f"--kubeconfig={config}",
        f"--authentication-kubeconfig={config}",
        f"--authorization-kubeconfig={config}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        "--leader-elect=false",
        "--profiling=false",
        "--kube-api-qps=200",  # the default of 20 makes a burst of Pods wait
        "--kube-api-burst=400",
    ]


def controller_manager_argv(binary: Path, ports: Ports, files: Files, tuning: Tuning) -> list[str]:
    """Every controller but those that cannot work on loopback."""
    return [
        str(binary),
        *_client_argv(files.controller_manager_config, ports.controller_manager),
        f"--controllers=*,{','.join('-' + name for name in _CONTROLLERS_OFF)}",
        "--use-service-account-credentials=true",
        f"--service-account-private-key-file={files.service_account.key}",
        f"--root-ca-file={files.authority.certificate}",
        f"--cluster-signing-cert-file={files.authority.certificate}",
        f"--cluster-signing-key-file={files.authority.key}",
        f"--node-monitor-grace-period={tuning.node_monitor_grace_s}s",
        "--node-monitor-period=2s",
        "--horizontal-pod-autoscaler-sync-period=5s",
    ]


def scheduler_argv(binary: Path, ports: Ports, files: Files) -> list[str]:
    """The default scheduler."""
    return [str(binary), *_client_argv(files.scheduler_config, ports.scheduler)]
