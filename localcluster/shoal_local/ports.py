"""Picks free TCP ports on loopback."""

import random
import socket

_RANGE = range(20000, 29900)
"""Below the kernel's ephemeral range, so that an outgoing connection does not take a port between pick and use."""
_ATTEMPTS_MAX = 500


def port_free(port: int, host: str = "127.0.0.1") -> bool:
    """Whether a listener could be opened there now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def pick_ports(count: int) -> list[int]:
    """`count` different free ports on 127.0.0.1; random, so that two clusters that start at once rarely meet."""
    picked: list[int] = []
    for _ in range(_ATTEMPTS_MAX):
        if len(picked) == count:
            return picked
        port = random.choice(_RANGE)
        if port not in picked and port_free(port):
            picked.append(port)
    raise OSError(f"no {count} free TCP ports between {_RANGE.start} and {_RANGE.stop} on 127.0.0.1")
