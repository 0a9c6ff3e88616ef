"""Which backends are installed: entry points of the group ``tupper.backends``.

A third party registers a backend in its own package's metadata. One that cannot be imported or
does not fit is not our failure: it is listed as unusable, with the reason.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Iterable

from tupper.core.backend import Backend, BackendContext, Machine, MachinePlan, MachineRecord, Probe
from tupper.core.errors import BackendUnavailable

GROUP = "tupper.backends"
_OURS = (
    importlib.metadata.EntryPoint("gvisor", "tupper.backends.gvisor:GVisor", GROUP),
    importlib.metadata.EntryPoint("qemu", "tupper.backends.qemu:Qemu", GROUP),
)


class BrokenBackend(Backend):
    """Stands for a plugin that could not be loaded.

    Args:
        name: of its entry point.
        reason: why it could not be loaded.
    """

    name = "broken"

    def __init__(self, name: str, reason: str) -> None:
        self._name = name
        self._reason = reason

    async def probe(self) -> Probe:
        """Says why."""
        remedy = "repair or uninstall the package that provides it"
        return Probe(self._name, usable=False, reason=self._reason, remedy=remedy)

    async def start(self, plan: MachinePlan) -> Machine:
        """Refuses."""
        del plan
        raise BackendUnavailable(f"backend {self._name} cannot be used: {self._reason}")

    async def adopt(self, record: MachineRecord) -> Machine:
        """Refuses: what it left behind is known to itself only."""
        del record
        raise BackendUnavailable(f"backend {self._name} cannot be used: {self._reason}")


def installed() -> list[importlib.metadata.EntryPoint]:
    """Installed backends, and ours also where tupper runs from a checkout without metadata."""
    found = list(importlib.metadata.entry_points(group=GROUP))
    names = {point.name for point in found}
    return [*found, *(point for point in _OURS if point.name not in names)]


def load_backends(
    context_for: Callable[[str], BackendContext],
    *,
    entry_points: Iterable[importlib.metadata.EntryPoint] | None = None,
) -> dict[str, Backend]:
    """One backend object for each installed backend, by name.

    Args:
        context_for: what a backend of this name may know.
        entry_points: instead of the installed ones.
    """
    points = installed() if entry_points is None else entry_points
    out: dict[str, Backend] = {}
    for point in points:
        out.setdefault(point.name, load_backend(point, context_for(point.name)))
    return out


def load_backend(point: importlib.metadata.EntryPoint, context: BackendContext) -> Backend:
    """The backend behind an entry point; a :class:`BrokenBackend` if there is none. Never raises.

    A settings mistake is a reason like any other: the user reads it in ``tupper doctor``, and the
    other backends work.
    """
    try:
        found: object = point.load()
        if not (isinstance(found, type) and issubclass(found, Backend)):
            return BrokenBackend(point.name, f"{point.value} is not a tupper backend")
        made = found(context)  # type: ignore[call-arg]
    except Exception as error:  # noqa: BLE001 (whatever a foreign module raises when imported)
        return BrokenBackend(point.name, f"{point.value}: {type(error).__name__}: {error}")
    if made.name != point.name:
        return BrokenBackend(point.name, f"{point.value} does not call itself {point.name!r}")
    return made
