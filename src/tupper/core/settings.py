"""The settings of the engine and the background process.

They come from the ``[settings]`` table of the configuration file and from ``TUPPER_*`` environment
variables of the background process, the latter winning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Settings:
    """What a user may set for all sandboxes of one tupper.

    Args:
        allow_internet_access: the default for new sandboxes.
        trust_host_ca: whether guests trust the certificate authorities that were added to the
            host on top of its distribution's.
        min_free_disk_mib: below this much free space in the data directory, no sandbox is made.
        max_sandboxes: how many may run at once.
        default_timeout_s: a sandbox's life if the caller does not say.
        max_timeout_s: the longest life a caller may ask for.
        requests_per_s: how many requests an API key may make in a second; 0 for no limit. Nobody
            on the unix socket is limited.
        cpus, memory_mib, disk_mib, pids: the limits of a sandbox if the caller does not say.
        leave_after_s: the background process leaves after this long with nothing running.
        backend: the default backend; empty for the strongest usable one.
        backends: backend name → its own settings, such as ``{"gvisor": {"platform": "ptrace"}}``.
    """

    allow_internet_access: bool = True
    trust_host_ca: bool = True
    min_free_disk_mib: int = 1024
    max_sandboxes: int = 1000
    requests_per_s: float = 200.0
    default_timeout_s: float = 300.0
    max_timeout_s: float = 30 * 24 * 3600.0
    cpus: float = 2.0
    memory_mib: int = 1024
    disk_mib: int = 10 * 1024
    pids: int = 1024
    leave_after_s: float = 600.0
    backend: str = ""
    backends: Mapping[str, Mapping[str, object]] = field(
        default_factory=dict[str, Mapping[str, object]]
    )
