"""Hearing what a guest's kernel says while it boots."""

from __future__ import annotations

import asyncio
import re
import socket

from tupper.core.errors import DeadlineExceeded, MachineFailed

_CHUNK = 1 << 14
_MOST = 1 << 16
_OVER = re.compile(r"(tupper: failed [^\n]{1,400}|Kernel panic - not syncing: [^\n]{1,200})\r?\n")


async def hear(console: socket.socket, sign: str, *, timeout_s: float) -> str:
    """Return what the guest says, once a whole line of it begins with the sign.

    Raises:
        MachineFailed: it says that it cannot go on, or QEMU has ended.
        DeadlineExceeded: it says nothing of that kind.
    """
    heard = ""
    wanted = re.compile(rf"^{re.escape(sign)}[^\n]*\n", re.MULTILINE)
    try:
        async with asyncio.timeout(timeout_s):
            while not wanted.search(heard):
                data = await asyncio.get_running_loop().sock_recv(console, _CHUNK)
                if not data:
                    raise MachineFailed(f"QEMU ended: {heard[-2000:].strip()}")
                heard = (heard + data.decode(errors="replace"))[-_MOST:]
                if over := _OVER.search(heard):
                    raise MachineFailed(f"the guest did not boot: {over[1].strip()}")
            return heard
    except TimeoutError as error:
        raise DeadlineExceeded(
            f"the guest did not boot within {timeout_s:g} s; it said last: {heard[-500:].strip()}"
        ) from error
