"""Which agent goes into a sandbox.

The wheel carries one static binary per processor, below ``bin``; it needs nothing from the image.
"""

from __future__ import annotations

import hashlib
import platform
from functools import lru_cache
from pathlib import Path

from tupper.core.errors import NotFound

_DIRECTORY = Path(__file__).parent / "bin"
_ARCHITECTURES = {
    "x86_64": "amd64",
    "amd64": "amd64",
    "aarch64": "arm64",
    "arm64": "arm64",
}


def find_agent_binary(arch: str = "", *, directory: Path = _DIRECTORY) -> Path:
    """The agent for a processor.

    Args:
        arch: as ``uname -m`` or an image says it; this host's if empty.
        directory: where the binaries are.

    Errors:
        NotFound: no agent is built for it.
    """
    name = _ARCHITECTURES.get((arch or platform.machine()).lower())
    if name is None:
        raise NotFound(f"there is no agent for the processor {arch or platform.machine()!r}")
    path = directory / f"tupper-agent-linux-{name}"
    if not path.is_file():
        raise NotFound(
            f"the agent {path.name} is missing from this installation",
            hint="install tupper again: building it compiles the agent",
        )
    return path


@lru_cache(maxsize=8)
def _digest_of(path: Path, size: int, mtime_ns: int) -> str:
    del size, mtime_ns  # part of the key
    with path.open("rb") as file:
        return "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()


def agent_digest(path: Path) -> str:
    """``sha256:…`` of an agent. Computed once while the file stays the same."""
    status = path.stat()
    return _digest_of(path, status.st_size, status.st_mtime_ns)
