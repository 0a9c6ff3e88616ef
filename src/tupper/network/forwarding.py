"""Switching on the host's forwarding, as little of it as will do, and back off again.

The global ``ip_forward`` stays as it is: what the kernel asks for is the setting of the device a
packet comes in by, so only the sandboxes' links and the devices of the host's routes out are set.
Where the host forwarded nothing before, a guard in the packet filter keeps it from becoming a
router between the devices that it had at that time.

Several engines share a host, so the original values are kept in one small file for all of them,
below ``/run``: it is gone after a reboot, as the settings are. Whoever finds that no sandbox link
of any engine is left puts them back. A crash loses nothing: the next sweep of any engine does it.

Source: Documentation/networking/ip-sysctl.rst (``conf/interface/forwarding``); flock(2).
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
from collections.abc import Collection, Generator
from pathlib import Path

from tupper.core.errors import NetworkError
from tupper.core.paths import make_private
from tupper.network.routes import interfaces
from tupper.protocol.connect import as_list, as_object

STATE_DIR = Path("/run/tupper-net")
_CONF = Path("/proc/sys/net/ipv4/conf")
_IPV6_CONF = Path("/proc/sys/net/ipv6/conf")
LINK = re.compile(r"tp[a-z0-9]{5}[0-9a-f]{5}")


def set_link(link: str, *, reaches_loopback: bool) -> None:
    """Set up a sandbox's link on the host's side.

    Args:
        link: the device.
        reaches_loopback: whether translated packets may go to 127.0.0.0/8 (a port of the host
            that the policy allows, a name server there).
    """
    _write(_CONF / link / "forwarding", "1")
    _write(_CONF / link / "route_localnet", "1" if reaches_loopback else "0")
    if _IPV6_CONF.exists():
        _write(_IPV6_CONF / link / "disable_ipv6", "1")


class Forwarding:
    """The forwarding of this host's devices, shared by all engines.

    Args:
        state_dir: where the original values are kept.
    """

    def __init__(self, state_dir: Path = STATE_DIR) -> None:
        self._dir = state_dir

    def ensure(self, uplinks: Collection[str]) -> frozenset[str]:
        """Let packets that come in by these devices be forwarded.

        Call it when the link that needs it exists: :meth:`release` looks for links.

        Returns:
            The devices to guard.
        """
        with self._locked() as file:
            state = _load(file)
            for name in sorted(uplinks):
                path = _CONF / name / "forwarding"
                if _read(path) != "0":
                    continue
                if not state:
                    state["global"] = _read(_CONF / "all" / "forwarding")
                    state["guarded"] = _guarded() if state["global"] == "0" else []
                _original(state)[name] = "0"
                file.write_text(json.dumps(state))
                _write(path, "1")
            return frozenset(_names(state.get("guarded")))

    def guarded(self) -> frozenset[str]:
        """The devices to guard, as things are."""
        with self._locked() as file:
            return frozenset(_names(_load(file).get("guarded")))

    def release(self) -> bool:
        """Put everything back if no engine has a link any more.

        Where the global setting was changed by somebody else meanwhile (a container engine was
        started), the devices keep what that setting gave them.

        Returns:
            Whether no link is left.
        """
        with self._locked() as file:
            if any(LINK.fullmatch(name) for name in interfaces()):
                return False
            state = _load(file)
            if state and state.get("global") == _read(_CONF / "all" / "forwarding"):
                for name, value in _original(state).items():
                    with contextlib.suppress(NetworkError):  # the device is gone
                        _write(_CONF / name / "forwarding", str(value))
            file.unlink(missing_ok=True)
            return True

    @contextlib.contextmanager
    def _locked(self) -> Generator[Path]:
        try:
            make_private(self._dir)
            key = str(os.stat("/proc/thread-self/ns/net").st_ino)  # noqa: PTH116
            fd = os.open(self._dir / f"{key}.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise NetworkError(f"cannot keep network state in {self._dir}: {error}") from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield self._dir / f"{key}.json"
        finally:
            os.close(fd)


def _guarded() -> list[str]:
    return [name for name in interfaces() if name != "lo" and not LINK.fullmatch(name)]


def _load(file: Path) -> dict[str, object]:
    try:
        value: object = json.loads(file.read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return as_object(value) or {}


def _original(state: dict[str, object]) -> dict[str, object]:
    value = as_object(state.setdefault("original", {}))
    if value is None:
        raise NetworkError("the record of forwarding is damaged")
    return value


def _names(value: object) -> list[str]:
    return [str(name) for name in as_list(value) or ()]


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _write(path: Path, value: str) -> None:
    try:
        path.write_text(value)
    except OSError as error:
        raise NetworkError(f"cannot write {value} to {path}: {error.strerror}") from error
