"""Where tupper keeps things on the host.

``TUPPER_HOME`` moves everything below one directory (each test run has its own). Otherwise data
is in ``$XDG_DATA_HOME/tupper``, configuration in ``$XDG_CONFIG_HOME/tupper``, downloads that can
be had again in ``$XDG_CACHE_HOME/tupper`` and sockets in a short runtime directory.

Source: XDG Base Directory Specification 0.8; the limit of a socket path is 107 bytes, unix(7).
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tupper.core.errors import PermissionDenied

SOCKET_PATH_MAX = 107


@dataclass(frozen=True, slots=True)
class Paths:
    """The directories of one tupper.

    Args:
        data: store, images, sandboxes. Never lost.
        config: the user's configuration file.
        cache: can be deleted at any time.
        runtime: sockets and pid files; short, gone after a reboot.
    """

    data: Path
    config: Path
    cache: Path
    runtime: Path

    @property
    def address_file(self) -> Path:
        """Holds the URL of the background process."""
        return self.runtime / "address"

    @property
    def socket(self) -> Path:
        """The background process listens here."""
        return self.runtime / "tupper.sock"


def find_paths(environ: Mapping[str, str] | None = None) -> Paths:
    """Work out the directories from the environment. Creates nothing.

    Raises:
        PermissionDenied: the place for sockets is a temporary one, and somebody else's.
    """
    env = os.environ if environ is None else environ
    home = Path(env.get("HOME") or Path.home())
    if root := env.get("TUPPER_HOME"):
        base = Path(root).absolute()
        return Paths(
            base, base, Path(env.get("TUPPER_CACHE") or base / "cache"), _runtime(env, base)
        )
    data = Path(env.get("XDG_DATA_HOME") or home / ".local" / "share") / "tupper"
    config = Path(env.get("XDG_CONFIG_HOME") or home / ".config") / "tupper"
    cache = Path(
        env.get("TUPPER_CACHE") or Path(env.get("XDG_CACHE_HOME") or home / ".cache") / "tupper"
    )
    return Paths(data, config, cache, _runtime(env, data))


def _runtime(env: Mapping[str, str], data: Path) -> Path:
    """A short directory of this user and this data directory; below /run for root."""
    key = hashlib.sha256(os.fsencode(data)).hexdigest()[:12]
    user = os.geteuid() if hasattr(os, "geteuid") else 0
    if user == 0 and Path("/run").is_dir():
        return Path("/run/tupper") / key
    base = env.get("XDG_RUNTIME_DIR") or env.get("TMPDIR") or tempfile.gettempdir()
    return _own(Path(base) / f"tupper-{user}", user) / key


def _own(place: Path, user: int) -> Path:
    """A place with a name that others can guess: they must not have been there first."""
    try:
        status = place.lstat()
    except OSError:
        return place
    if not stat.S_ISDIR(status.st_mode) or (hasattr(os, "geteuid") and status.st_uid != user):
        raise PermissionDenied(
            f"{place} is not a directory of this user",
            hint="remove it, or set XDG_RUNTIME_DIR to a directory of your own",
        )
    return place


def make_private(directory: Path) -> Path:
    """Create a directory (and its parents) for this user alone, and check that it is ours.

    Raises:
        PermissionError: it exists and belongs to somebody else, or is a link.
    """
    # The parents that are missing become private, too: who may write there may swap what is below.
    missing = [parent for parent in directory.parents if not parent.exists()]
    for parent in reversed(missing):
        parent.mkdir(mode=0o700, exist_ok=True)
    directory.mkdir(mode=0o700, exist_ok=True)
    status = directory.lstat()
    if directory.is_symlink() or (hasattr(os, "geteuid") and status.st_uid != os.geteuid()):
        raise PermissionError(f"{directory} is not a directory of this user")
    if status.st_mode & 0o077:
        directory.chmod(0o700)
    return directory
