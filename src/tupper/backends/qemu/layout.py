"""The files of one machine, all below ``plan.directory / "machine"``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

CONTROL_NAME = "qmp.sock"
AGENT_NAME = "agent.sock"
CHANNEL_NAME = "channel.sock"
CONSOLE_NAME = "console.log"


@dataclass(frozen=True, slots=True)
class Layout:
    """Where things are.

    Args:
        base: the directory itself, ours alone.
    """

    base: Path

    @property
    def run(self) -> Path:
        """The part that belongs to the user that QEMU and the relay run as.

        Whatever lies here may have been put here by a guest that has taken them over.
        """
        return self.base / "run"

    @property
    def control(self) -> Path:
        """QEMU takes commands here."""
        return self.base / CONTROL_NAME

    @property
    def shares(self) -> Path:
        """Where the host's directories are put together; nobody else sees them there."""
        return self.base / "shares"

    @property
    def agent(self) -> Path:
        """The relay listens here."""
        return self.run / AGENT_NAME

    @property
    def channel(self) -> Path:
        """QEMU listens here, and the relay dials."""
        return self.run / CHANNEL_NAME

    @property
    def output(self) -> Path:
        """What QEMU said."""
        return self.base / "qemu.log"

    @property
    def relay_output(self) -> Path:
        """What the relay said."""
        return self.base / "relay.log"

    @property
    def console(self) -> Path:
        """What the guest's kernel said; its older half is beside it."""
        return self.run / CONSOLE_NAME

    @property
    def older_console(self) -> Path:
        """The older half."""
        return self.run / f"{CONSOLE_NAME}.1"

    @property
    def settings(self) -> Path:
        """What the relay tells a guest that boots. Holds the agent's token."""
        return self.base / "settings.json"

    @property
    def news(self) -> Path:
        """What the relay tells a guest that goes on."""
        return self.base / "news.json"
