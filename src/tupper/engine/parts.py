"""The layers below, as the engine uses them.

The engine is the only layer that knows all the ones below. It takes them as one bundle, so that a
test can give it a backend of its own while everything else is real. :func:`find_parts` makes the
real bundle; it imports late, because a background process that serves no sandbox should be small.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from tupper.core.backend import AgentAddress, Attachment, Backend, Isolation, Probe
from tupper.core.sandbox import SandboxRecord

if TYPE_CHECKING:
    from tupper.engine.context import Context
    from tupper.images import Images, Templates
    from tupper.network import Policy


class AgentClient(Protocol):
    """What the engine asks of an agent; ``tupper.guest.Agent`` is one."""

    async def health(self) -> None:
        """Return when it has answered."""

    async def init(self, *, ca_bundle: str) -> None:
        """Make the guest trust more certificate authorities."""

    async def status(self) -> Mapping[str, object]:
        """Its own view: ``lastActivity`` in unix ms, limits hit, and more."""
        ...

    async def metrics(self) -> Mapping[str, object]:
        """What the guest uses."""
        ...

    async def deadline(self, unix_s: float) -> None:
        """Tell when the sandbox ends; 0 for never."""

    async def shutdown(self, *, grace_s: float) -> None:
        """Ask for an orderly end, with everything written to disk."""

    async def log(self) -> str:
        """Its log."""
        ...

    async def hold(self, *, lease_s: float, stop: bool) -> None:
        """Stand still for a snapshot: when this returns, it listens nowhere.

        With ``stop`` nothing else inside runs either.
        """

    async def identity(
        self,
        *,
        sandbox_id: str,
        token: str,
        hostname: str,
        machine_id: str,
        seed: bytes,
        deadline_unix_s: float,
        texts: Mapping[str, tuple[str, str]],
    ) -> list[str]:
        """Be somebody else after a restore, or the same one again; returns what went wrong."""
        ...

    async def add_env(self, env: Mapping[str, str]) -> None:
        """Give further variables to every process from now on."""

    async def close(self) -> None:
        """Close idle connections."""


class Net(Protocol):
    """Networks of sandboxes; ``tupper.network.Network`` is one."""

    async def prepare(self, sandbox_id: str, policy: Policy) -> Attachment:
        """Make a network that lets nothing through yet."""
        ...

    async def admit(self, attachment: Attachment) -> None:
        """Let through what its policy allows."""

    async def detach(self, attachment: Attachment) -> None:
        """Remove it. Idempotent."""

    async def update(self, attachment: Attachment, policy: Policy) -> None:
        """Replace the policy, for connections that are open too."""

    async def sweep(self, keep: Collection[str]) -> list[str]:
        """Remove all of this engine but those of these sandboxes."""
        ...


class Forward(Protocol):
    """A listener on the host that leads to a port inside; ``tupper.network.PortForward``."""

    async def open(
        self, address: AgentAddress, token: str, guest_port: int, host: str, host_port: int
    ) -> int:
        """Listen; returns the port."""
        ...

    def close(self) -> None:
        """Stop listening and end what is open."""


Choose = Callable[[Sequence[Probe], str, Isolation | None], Probe]
"""(probes, backend by name or "", least isolation) → the probe of the backend to use."""


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Dial(Protocol):
    """Connects to a port inside; ``tupper.guest.dial``."""

    async def __call__(
        self, address: AgentAddress, token: str, port: int, /, *, carry: str = ""
    ) -> Streams:
        """A connection; ``carry`` is the name to continue it by after a snapshot."""
        ...


CarryOn = Callable[[AgentAddress, str, str], Awaitable[Streams | None]]
"""(agent, its token, name) → the connection of that name, continued; None if it is over."""


@dataclass(frozen=True, slots=True)
class Parts:
    """The layers below the engine.

    Args:
        images, templates: where root filesystems come from.
        network: where networks come from.
        backends: by name.
        choose: which backend to use.
        agent: makes the client for an agent.
        claim: moves an agent's socket from the shared directory into a private place.
        forward: makes a port forward.
        make_disk: makes a disk image at a path, of so many MiB.
        agent_binary: the agent for this host's processor.
        policy: a sandbox's network policy.
        dial: connects to a port inside; 49983 is the agent's own.
        carry_on: continues a connection after a snapshot.
        bind: told of the engine's world once there is one.
    """

    images: Images
    templates: Templates
    network: Net
    backends: Mapping[str, Backend]
    choose: Choose
    agent: Callable[[AgentAddress, str], AgentClient]
    claim: Callable[[Path, Path, float], Awaitable[None]]
    forward: Callable[[], Forward]
    make_disk: Callable[[Path, int], Awaitable[None]]
    agent_binary: Callable[[], Path]
    policy: Callable[[SandboxRecord], Policy]
    dial: Dial
    carry_on: CarryOn
    bind: Callable[[Context], None]
