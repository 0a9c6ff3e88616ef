"""How fast the host's time stamp counter runs, which an emulated guest has as its own."""

from __future__ import annotations

from pathlib import Path

from tupper.core.process import run_sync

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_TIMEOUT_S = 30.0


def tsc_khz(home: Path, agent_binary: Path) -> int:
    """The speed, measured once for each boot of the host; 0 if it has no such counter. Blocks.

    Args:
        home: the backend's directory.
        agent_binary: the agent for this host's processor, which can measure it.
    """
    boot = _BOOT_ID.read_text().strip()
    known = home / "tsc"
    try:
        measured_in, khz = known.read_text().split()
        if measured_in == boot:
            return int(khz)
    except (OSError, ValueError):
        pass
    done = run_sync([str(agent_binary), "tsc"], timeout_s=_TIMEOUT_S)
    known.write_text(f"{boot} {int(done.text)}\n")
    return int(done.text)
