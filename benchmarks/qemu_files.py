"""QEMU: files up and down through the SDK, against plain TCP to a program in the same guest."""

import argparse
import os
import socket
import statistics
import tempfile
import time
from typing import IO

from benchmarks.harness import taking_turns, timed
from benchmarks.raw_qemu import MEMORY_MIB, find_qemu
from tupper import Sandbox

_SIZE = 48 << 20
_PIECE = 1 << 20
_PATH = "/dev/shm/blob"  # memory: the line is measured, not the guest's disk
_PORT = 4999
_PEER = f"""
import socket
listener = socket.create_server(("0.0.0.0", {_PORT}))
print("ready", flush=True)
buffer = bytearray({_PIECE})
while True:
    peer, _ = listener.accept()
    way = peer.recv(1)
    if way == b"u":
        while peer.recv_into(buffer):
            pass
        peer.sendall(b".")
    elif way == b"d":
        for _ in range({_SIZE // _PIECE}):
            peer.sendall(buffer)
    peer.close()
"""


def measure(options: argparse.Namespace) -> dict[str, object]:
    qemu = find_qemu()
    if isinstance(qemu, str):
        return {"skipped": qemu}
    extra = {"backend": "qemu", "memory": f"{MEMORY_MIB}m", "user": "root", "timeout": 1800}
    times: dict[str, list[float]] = {n: [] for n in ("up", "down", "tcp_up", "tcp_down")}
    with Sandbox.create(**extra) as sbx, tempfile.TemporaryFile() as file:
        for _ in range(_SIZE // _PIECE):
            file.write(os.urandom(_PIECE))
        sbx.files.write("/tmp/peer.py", _PEER)
        peer = sbx.commands.run("exec python3 /tmp/peer.py", background=True, timeout=0)
        address = sbx.commands.run("hostname -I").stdout.split()[0]
        turns = {
            "up": lambda: _up(sbx, file),
            "down": lambda: _down(sbx),
            "tcp_up": lambda: _tcp(address, b"u", file),
            "tcp_down": lambda: _tcp(address, b"d", file),
        }
        _wait(address)

        def measured(name: str) -> None:
            times[name].append(timed(turns[name]))

        taking_turns(
            [lambda n=name: measured(n) for name in turns], max(3, options.repeat // 2) + 1
        )
        peer.kill()
    rates = {name: [_SIZE / 1e6 / s for s in values[1:]] for name, values in times.items()}
    return {
        "mechanism": qemu.mechanism,
        **{
            f"{n}_mb_s": {"median": round(statistics.median(v), 1), "best": round(max(v), 1)}
            for n, v in rates.items()
        },
        **{
            f"{way}_to_tcp": round(
                statistics.median(rates[way]) / statistics.median(rates[f"tcp_{way}"]), 3
            )
            for way in ("up", "down")
        },
    }


def _up(sbx: Sandbox, file: IO[bytes]) -> None:
    file.seek(0)
    sbx.files.write(_PATH, file)


def _down(sbx: Sandbox) -> None:
    received = sum(len(chunk) for chunk in sbx.files.read(_PATH, format="stream"))
    if received != _SIZE:
        raise RuntimeError(f"received {received} of {_SIZE} bytes")


def _tcp(address: str, way: bytes, file: IO[bytes]) -> None:
    with socket.create_connection((address, _PORT), timeout=120) as peer:
        peer.sendall(way)
        if way == b"u":
            file.seek(0)
            peer.sendfile(file)
            peer.shutdown(socket.SHUT_WR)
        received = 0
        while piece := peer.recv(_PIECE):
            received += len(piece)
        if received != (1 if way == b"u" else _SIZE):
            raise RuntimeError(f"{received} bytes came over TCP")


def _wait(address: str) -> None:
    """Until the program inside listens."""
    for _ in range(1000):
        try:
            socket.create_connection((address, _PORT), timeout=5).close()
        except ConnectionRefusedError:
            time.sleep(0.02)
        else:
            return
    raise RuntimeError("nobody listens in the guest")
