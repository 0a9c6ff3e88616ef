"""100 MB up and down through the SDK, and the memory that 1 GB takes in our processes."""

import argparse
import os
import tempfile

from benchmarks.harness import rss_bytes, spread, timed
from tupper import Sandbox
from tupper.core.paths import find_paths

SIZE = 100 * 1000 * 1000
LARGE = 1000 * 1000 * 1000
_PIECE = 1 << 20


def measure(options: argparse.Namespace) -> dict[str, object]:
    extra = {"backend_options": {"platform": options.platform}} if options.platform else {}
    with (
        Sandbox.create(disk="4g", memory="2g", timeout=900, **extra) as sbx,
        tempfile.TemporaryFile() as file,
    ):
        _fill(file, SIZE)

        def up() -> None:
            file.seek(0)
            sbx.files.write("/home/user/blob", file)

        def down() -> None:
            received = sum(
                len(chunk) for chunk in sbx.files.read("/home/user/blob", format="stream")
            )
            if received != SIZE:
                raise RuntimeError(f"received {received} of {SIZE} bytes")

        repeat = max(3, options.repeat // 2)
        ups, downs = [timed(up) for _ in range(repeat)], [timed(down) for _ in range(repeat)]
        memory = _memory_of_large(sbx, file)
    return {
        "up_mb_s": round(SIZE / 1e6 / min(ups), 1),
        "down_mb_s": round(SIZE / 1e6 / min(downs), 1),
        "up_ms": spread(ups),
        "down_ms": spread(downs),
        **memory,
    }


def _memory_of_large(sbx: Sandbox, file: object) -> dict[str, object]:
    """Growth of the resident memory of client and background process while 1 GB passes."""
    _fill(file, LARGE)
    daemon = int((find_paths().runtime / "pid").read_text())
    before = {pid: rss_bytes(pid) for pid in (os.getpid(), daemon)}
    peak = dict(before)

    def look() -> None:
        for pid, highest in peak.items():
            peak[pid] = max(highest, rss_bytes(pid))

    file.seek(0)
    sbx.files.write("/home/user/large", file)
    look()
    for index, _ in enumerate(sbx.files.read("/home/user/large", format="stream")):
        if index % 256 == 0:
            look()
    growth = {pid: round((peak[pid] - before[pid]) / 1e6, 1) for pid in peak}
    return {"client_growth_mb": growth[os.getpid()], "background_growth_mb": growth[daemon]}


def _fill(file: object, size: int) -> None:
    file.seek(0)
    piece = os.urandom(_PIECE)
    for start in range(0, size, _PIECE):
        file.write(piece[: min(_PIECE, size - start)])
    file.flush()
