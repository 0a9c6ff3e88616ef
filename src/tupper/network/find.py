"""Choosing the kind of network that this user can have on this host."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from tupper.core.errors import NetworkError
from tupper.network.policy import Network


def find_network(engine_id: str, data_dir: Path) -> Network:
    """The networks of an engine: namespaces for root, a holder for an ordinary user.

    Errors:
        NetworkError: not Linux, or the programs are missing.
    """
    if sys.platform != "linux":
        raise NetworkError("networks of sandboxes need Linux")
    if os.geteuid() == 0:
        missing = [name for name in ("ip", "nft") if not _which(name)]
        if missing:
            raise NetworkError(
                f"not installed: {', '.join(missing)}", hint="apt-get install iproute2 nftables"
            )
        from tupper.network.namespaces import Namespaces  # noqa: PLC0415 - Linux only

        return Namespaces(engine_id, data_dir)
    from tupper.network.holder import Holders  # noqa: PLC0415 - Linux only

    return Holders(engine_id, data_dir)


def _which(name: str) -> str | None:
    path = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"
    return shutil.which(name, path=path)
