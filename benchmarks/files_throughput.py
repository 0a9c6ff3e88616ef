"""100 MB up and down through the SDK, and the memory that 1 GB takes in each of our processes.

The large file goes both ways twice: straight to the agent, and through the background process as
clients on other machines do it. Memory is the growth of the highest resident size over the one
before: of this process, of the background process, and of the agent, sampled from inside.
"""

import argparse
import http.client
import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from typing import IO

from benchmarks.harness import background_pid, peak_growth_mb, spread, timed
from tupper import Sandbox
from tupper.core.paths import find_paths

SIZE = 100 * 1000 * 1000
LARGE = 1000 * 1000 * 1000
_PIECE = 1 << 20
_PATH = "/home/user/blob"
_SAMPLER = """
import os, time
def resident():
    return int(open("/proc/1/statm").read().split()[1]) * 4096
first = highest = resident()
print("ready", flush=True)
while not os.path.exists("/tmp/stop"):
    highest = max(highest, resident())
    time.sleep(0.02)
print(highest - first)
"""


class _Unix(http.client.HTTPConnection):
    """HTTP over the background process's socket."""

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(300)
        self.sock.connect(str(find_paths().socket))


def measure(options: argparse.Namespace) -> dict[str, object]:
    extra = {"backend_options": {"platform": options.platform}} if options.platform else {}
    with (
        Sandbox.create(disk="4g", memory="2g", timeout=1800, **extra) as sbx,
        tempfile.TemporaryFile() as file,
    ):
        _fill(file, SIZE)
        repeat = max(3, options.repeat // 2)
        ups, downs = [], []
        for _ in range(repeat):
            ups.append(timed(lambda: _send(sbx, file)))
            downs.append(timed(lambda: _receive(sbx, SIZE)))
        _fill(file, LARGE)
        return {
            "up_mb_s": round(SIZE / 1e6 / min(ups), 1),
            "down_mb_s": round(SIZE / 1e6 / min(downs), 1),
            "up_ms": spread(ups),
            "down_ms": spread(downs),
            "growth_mb_direct": _memory(
                sbx, lambda: _send(sbx, file), lambda: _receive(sbx, LARGE)
            ),
            "growth_mb_by_proxy": _memory(
                sbx, lambda: _send_by_proxy(sbx, file), lambda: _receive_by_proxy(sbx)
            ),
        }


def _send(sbx: Sandbox, file: IO[bytes]) -> None:
    file.seek(0)
    sbx.files.write(_PATH, file)


def _receive(sbx: Sandbox, size: int) -> None:
    received = sum(len(chunk) for chunk in sbx.files.read(_PATH, format="stream"))
    if received != size:
        raise RuntimeError(f"received {received} of {size} bytes")


def _send_by_proxy(sbx: Sandbox, file: IO[bytes]) -> None:
    def pieces() -> Iterator[bytes]:
        file.seek(0)
        while piece := file.read(_PIECE):
            yield piece

    headers = {"Content-Length": str(LARGE), "Content-Type": "application/octet-stream"}
    status, _ = _ask(sbx, "POST", headers, pieces())
    if status != 200:
        raise RuntimeError(f"upload by proxy: HTTP status {status}")


def _receive_by_proxy(sbx: Sandbox) -> None:
    status, received = _ask(sbx, "GET", {}, None)
    if status != 200 or received != LARGE:
        raise RuntimeError(f"download by proxy: HTTP status {status}, {received} bytes")


def _ask(
    sbx: Sandbox, method: str, headers: dict[str, str], body: Iterator[bytes] | None
) -> tuple[int, int]:
    connection = _Unix("sandbox")
    token = sbx._grant.token  # noqa: SLF001 - the SDK would go straight to the agent
    route = {"E2b-Sandbox-Id": sbx.sandbox_id, "E2b-Sandbox-Port": "49983"}
    connection.request(
        method, f"/files?path={_PATH}", body, route | headers | {"X-Access-Token": token}
    )
    answer = connection.getresponse()
    received = 0
    while piece := answer.read(_PIECE):
        received += len(piece)
    connection.close()
    return answer.status, received


def _memory(sbx: Sandbox, *transfers: Callable[[], None]) -> dict[str, float]:
    """Growth while the transfers run."""
    sbx.files.write("/tmp/sampler.py", _SAMPLER)
    sbx.commands.run("rm -f /tmp/stop")
    sampler = sbx.commands.run("exec python3 /tmp/sampler.py", background=True, timeout=0)
    pids = {"client": os.getpid(), "background": background_pid()}
    with peak_growth_mb(pids) as growth:
        for transfer in transfers:
            transfer()
    sbx.files.write("/tmp/stop", "")
    growth["agent"] = round(int(sampler.wait().stdout.split()[-1]) / 1e6, 1)
    return growth


def _fill(file: IO[bytes], size: int) -> None:
    file.seek(0)
    piece = os.urandom(_PIECE)
    for start in range(0, size, _PIECE):
        file.write(piece[: min(_PIECE, size - start)])
    file.flush()
