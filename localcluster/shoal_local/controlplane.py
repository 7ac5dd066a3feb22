"""etcd, kube-apiserver, kube-controller-manager and kube-scheduler on 127.0.0.1, as one thing that starts and stops.

Used by the local cluster's supervisor and by the tests' fixtures. Each instance has its own folder, ports and PKI, so
any number can run side by side. Every wait has a deadline; a component that dies is reported with the end of its log.
"""

import concurrent.futures
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx

from shoal_local import components
from shoal_local.child import Child
from shoal_local.kubeconfig import write_kubeconfig
from shoal_local.pki import Pair, Pki
from shoal_local.ports import pick_ports

START_DEADLINE_S = 90.0
_PORT_ATTEMPTS = 3
_POLL_S = 0.05
_APISERVER_GRACE_S = 2.0


class ControlPlaneError(RuntimeError):
    """The control plane did not start or a part of it died."""


class ControlPlane:
    """A Kubernetes control plane in `folder`; a context manager. `kubeconfig` is the administrator's.

    `controllers=False` leaves out controller-manager and scheduler: quicker, and enough for schemas and CEL.
    `when_api_ready` is called as soon as the API answers, for what can start beside the controllers.
    """

    def __init__(
        self,
        folder: Path,
        binaries: Path,
        *,
        controllers: bool = True,
        tuning: components.Tuning | None = None,
        progress: Callable[[str], None] | None = None,
        when_api_ready: Callable[[], None] | None = None,
    ) -> None:
        self.folder = folder.resolve()
        self.binaries = binaries
        self.kubeconfig = self.folder / "kubeconfig"
        self._controllers = controllers
        self._tuning = tuning or components.Tuning()
        self._progress = progress or (lambda _line: None)
        self._when_api_ready = when_api_ready
        # Children die with the thread that started them: this one lives until `stop`, whoever calls `start`.
        self._spawner: concurrent.futures.ThreadPoolExecutor | None = None
        self._children: dict[str, Child] = {}
        self._client: httpx.Client | None = None
        self.port = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """Base URL of kube-apiserver."""
        return f"https://127.0.0.1:{self.port}"

    @property
    def pki(self) -> Pki:
        """The cluster's certificates and keys."""
        return Pki(self.folder / "pki")

    @property
    def pids(self) -> dict[str, int]:
        """Process ids of the running components, by name."""
        return {name: child.pid for name, child in self._children.items() if child.pid is not None}

    @property
    def logs(self) -> Path:
        """Folder of the components' logs."""
        return self.folder / "logs"

    def start(self) -> None:
        """Starts all and returns when Pods could be made; raises ControlPlaneError."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for attempt in range(_PORT_ATTEMPTS):
            self._spawner = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="shoal-control-plane")
            try:
                self._start_once()
            except ControlPlaneError as error:
                self.stop()
                if "address already in use" not in str(error) or attempt == _PORT_ATTEMPTS - 1:
                    raise
            except BaseException:
                self.stop()
                raise
            else:
                return

    def stop(self) -> None:
        """Stops all, in the opposite order: an apiserver whose etcd has gone waits a minute."""
        for name in ("kube-scheduler", "kube-controller-manager", "kube-apiserver", "etcd"):
            child = self._children.pop(name, None)
            if child is not None:
                child.stop()
        if self._client is not None:
            self._client.close()
            self._client = None
        if self._spawner is not None:
            self._spawner.shutdown()
            self._spawner = None

    def check(self) -> None:
        """Raises ControlPlaneError when a component that should run has died."""
        for child in self._children.values():
            failure = child.failure()
            if failure is not None:
                raise ControlPlaneError(failure)

    def revive(self) -> list[str]:
        """Starts components that have died again; what they said last, one text each."""
        failures = []
        for child in self._children.values():
            failure = child.failure()
            if failure is not None:
                failures.append(failure)
                self._spawn(child)
        return failures

    def stop_apiserver(self) -> None:
        """Stops kube-apiserver alone; state stays in etcd. Killed after a moment, for open watches would hold it."""
        self._children["kube-apiserver"].stop(_APISERVER_GRACE_S)

    def start_apiserver(self) -> None:
        """Starts kube-apiserver again on the same port and waits until it is ready."""
        self._spawn(self._children["kube-apiserver"])
        self._wait_for_apiserver(time.monotonic() + START_DEADLINE_S)

    def restart_apiserver(self) -> None:
        """As after an upgrade of kube-apiserver: every connection and watch is cut."""
        self.stop_apiserver()
        self.start_apiserver()

    def user_kubeconfig(self, path: Path, common_name: str, organization: str | None = None) -> Path:
        """Writes a kubeconfig of one more user, whose rights are what RBAC gives that name and group."""
        client = self.pki.client(f"user-{path.stem}", common_name, organization)
        return write_kubeconfig(path, self.url, self.pki.authority("ca").certificate, client, common_name)

    def _start_once(self) -> None:
        deadline = time.monotonic() + START_DEADLINE_S
        ports = components.Ports(*pick_ports(5))
        self.port = ports.apiserver
        files = self._prepare()
        self._children = {
            child.name: child
            for child in (
                self._child("etcd", components.etcd_argv(self.binaries / "etcd", ports, files)),
                self._child(
                    "kube-apiserver",
                    components.apiserver_argv(
                        self.binaries / "kube-apiserver", ports, files, self._tuning.apiserver_args
                    ),
                ),
            )
        }
        self._progress("Starting etcd")
        self._spawn(self._children["etcd"])
        self._wait("etcd", lambda: _etcd_healthy(ports.etcd), deadline)
        self._progress("Starting kube-apiserver")
        self._spawn(self._children["kube-apiserver"])
        self._wait_for_apiserver(deadline)
        if self._when_api_ready is not None:
            self._when_api_ready()
        if self._controllers:
            self._start_controllers(ports, files, deadline)

    def _start_controllers(self, ports: components.Ports, files: components.Files, deadline: float) -> None:
        self._progress("Starting kube-controller-manager and kube-scheduler")
        manager = components.controller_manager_argv(
            self.binaries / "kube-controller-manager", ports, files, self._tuning
        )
        scheduler = components.scheduler_argv(self.binaries / "kube-scheduler", ports, files)
        for name, argv in (("kube-controller-manager", manager), ("kube-scheduler", scheduler)):
            self._children[name] = self._child(name, argv)
            self._spawn(self._children[name])
        account = "/api/v1/namespaces/default/serviceaccounts/default"
        self._wait("kube-controller-manager", lambda: self._status(account) == 200, deadline)
        scheduler_health = f"https://127.0.0.1:{ports.scheduler}/readyz"
        self._wait("kube-scheduler", lambda: _self_signed_ok(scheduler_health), deadline)

    def _prepare(self) -> components.Files:
        pki, conf = self.pki, self.folder / "conf"
        conf.mkdir(exist_ok=True, mode=0o700)
        authority = pki.authority("ca")
        front_proxy = pki.authority("front-proxy-ca")
        admin = pki.client("admin", "admin", "system:masters")
        write_kubeconfig(self.kubeconfig, self.url, authority.certificate, admin, "admin")
        manager = pki.client("kube-controller-manager", "system:kube-controller-manager")
        scheduler = pki.client("kube-scheduler", "system:kube-scheduler")

        def config(name: str, client: Pair) -> Path:
            path = conf / f"{name}.kubeconfig"
            return write_kubeconfig(path, self.url, authority.certificate, client, name)

        if self._client is not None:
            self._client.close()
        self._client = self.client()
        return components.Files(
            data=self.folder / "etcd",
            authority=authority,
            front_proxy_authority=front_proxy,
            front_proxy_client=pki.client("front-proxy-client", "front-proxy-client", authority="front-proxy-ca"),
            apiserver=pki.server("kube-apiserver", "kube-apiserver", components.APISERVER_NAMES),
            kubelet_client=pki.client("kubelet-client", "kube-apiserver-kubelet-client", "system:masters"),
            service_account=pki.service_account_keys(),
            controller_manager_config=config("kube-controller-manager", manager),
            scheduler_config=config("kube-scheduler", scheduler),
        )

    def client(self) -> httpx.Client:
        """A fresh HTTP client of kube-apiserver as administrator; the caller closes it."""
        admin = self.pki.client("admin", "admin", "system:masters")
        context = ssl.create_default_context(cafile=str(self.pki.authority("ca").certificate))
        context.load_cert_chain(admin.certificate, admin.key)
        return httpx.Client(base_url=self.url, verify=context, timeout=5.0, trust_env=False)

    def _child(self, name: str, argv: list[str]) -> Child:
        return Child(name, argv, self.logs / f"{name}.log")

    def _spawn(self, child: Child) -> None:
        if self._spawner is None:
            raise ControlPlaneError("the control plane has been stopped")
        self._spawner.submit(child.start).result()

    def _status(self, path: str) -> int | None:
        """Status code of a GET as administrator; None when nobody answers."""
        if self._client is None:
            return None
        try:
            return self._client.get(path).status_code
        except httpx.TransportError:
            return None

    def _wait_for_apiserver(self, deadline: float) -> None:
        self._wait("kube-apiserver", lambda: self._status("/readyz") == 200, deadline)

    def _wait(self, name: str, ready: Callable[[], bool], deadline: float) -> None:
        while not ready():
            self.check()
            if time.monotonic() > deadline:
                raise ControlPlaneError(
                    f"{name} was not ready within {START_DEADLINE_S:.0f} s; its log is {self.logs / name}.log"
                )
            time.sleep(_POLL_S)


def _etcd_healthy(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/health", timeout=2.0, trust_env=False).status_code == 200
    except httpx.TransportError:
        return False


def _self_signed_ok(url: str) -> bool:
    """Health of a component that makes its own serving certificate on loopback."""
    try:
        return httpx.get(url, timeout=2.0, verify=False, trust_env=False).status_code == 200  # noqa: S501
    except httpx.TransportError:
        return False
