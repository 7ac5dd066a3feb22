"""Addresses on loopback: 127.N.0.x for nodes, the rest of 127.N for Pods, one N for each cluster.

All of 127.0.0.0/8 belongs to the loopback interface on Linux, so every Pod can listen on the same port as the others.
The open kubelet port on 127.N.0.1 is what marks an N as taken, so two clusters cannot share one.
"""

import hashlib
import ipaddress
import socket
from typing import Final

_PREFIXES: Final = range(64, 250)
NODES_MAX: Final = 250
_PODS_MAX: Final = 250 * 250


class AddressesExhaustedError(RuntimeError):
    """Every Pod address is in use."""


def node_address(prefix: int, index: int) -> str:
    """Address of the index-th node."""
    if not 0 <= index < NODES_MAX:
        raise ValueError(f"a local cluster has at most {NODES_MAX} nodes")
    return f"127.{prefix}.0.{index + 1}"


def prefixes_by_preference(cluster: str) -> list[int]:
    """All prefixes, in an order that is the same for the same cluster, so that it gets its addresses back."""
    start = int.from_bytes(hashlib.sha256(cluster.encode()).digest()[:4], "big") % len(_PREFIXES)
    return [*_PREFIXES[start:], *_PREFIXES[:start]]


def claim_prefix(cluster: str, port: int) -> tuple[int, int, socket.socket]:
    """A prefix nobody else uses, the kubelet port there, and the bound socket of its first node that keeps it ours.

    Another port only where a kubelet of the machine itself listens on all addresses.
    """
    for candidate in (port, port + 100, port + 200):
        found = _claim(cluster, candidate)
        if found is not None:
            return found
    raise OSError(f"no 127.N range is free (port {port} is taken on all of them)")


def _claim(cluster: str, port: int) -> tuple[int, int, socket.socket] | None:
    for prefix in prefixes_by_preference(cluster):
        claim = socket.socket()
        claim.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            claim.bind((node_address(prefix, 0), port))
            claim.listen(128)
        except OSError:
            claim.close()
            continue
        return prefix, port, claim
    return None


class PodAddresses:
    """Hands out Pod addresses; a released one comes back only after all others have been used."""

    def __init__(self, prefix: int) -> None:
        self._prefix = prefix
        self._used: set[str] = set()
        self._next = 0

    def take(self, wanted: str | None = None) -> str:
        """A free address: `wanted` if it is one of ours and free (a Pod that had it before)."""
        if wanted is not None and self._ours(wanted) and wanted not in self._used:
            self._used.add(wanted)
            return wanted
        for _ in range(_PODS_MAX):
            address = f"127.{self._prefix}.{1 + self._next // 250}.{1 + self._next % 250}"
            self._next = (self._next + 1) % _PODS_MAX
            if address not in self._used:
                self._used.add(address)
                return address
        raise AddressesExhaustedError(f"all {_PODS_MAX} Pod addresses are in use")

    def release(self, address: str) -> None:
        """Gives an address back."""
        self._used.discard(address)

    def _ours(self, address: str) -> bool:
        try:
            parts = ipaddress.IPv4Address(address).packed
        except ValueError:
            return False
        return parts[0] == 127 and parts[1] == self._prefix and parts[2] > 0
