"""This host's backends.

The only place of the command line that talks to the layers below the server: ``setup`` and
``doctor`` must work when the background process cannot start.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from tupper.core.backend import BackendContext, Probe
from tupper.core.config import load_config
from tupper.core.errors import BackendUnavailable, TupperError
from tupper.core.ids import new_engine_id
from tupper.core.paths import find_paths, make_private

if TYPE_CHECKING:
    from tupper.core.backend import Backend

Say = Callable[[str], None]

# Backends whose programs can be fetched. Imported when they are: doctor needs none of it.
_SETUPS = {"gvisor": "tupper.backends.gvisor.setup", "qemu": "tupper.backends.qemu.setup"}


def context_for(name: str) -> BackendContext:
    """What a backend is told. Probes name nothing on the host after the engine."""
    paths = find_paths()
    settings = load_config(paths, environ=os.environ).settings
    data_dir = make_private(paths.data)
    return BackendContext(data_dir, new_engine_id(), settings.backends.get(name, {}))


async def probe_backends() -> list[Probe]:
    """Ask every installed backend, the strongest usable one first."""
    from tupper.backends.registry import load_backends  # noqa: PLC0415 - see the module

    probes = [await _probe(name, backend) for name, backend in load_backends(context_for).items()]
    return sorted(probes, key=lambda p: -p.isolation.strength if p.isolation else 0)


async def _probe(name: str, backend: Backend) -> Probe:
    try:
        return await backend.probe()
    except TupperError as error:
        return Probe(name, usable=False, reason=error.message, remedy=error.hint or "")


async def set_up_backends(say: Say) -> None:
    """Make usable what can be.

    Errors:
        BackendUnavailable: none is usable afterwards; the text has the reason of each.
    """
    failures: list[str] = []
    hint: str | None = None
    for name, module in _SETUPS.items():
        try:
            said = await importlib.import_module(module).setup(context_for(name), progress=say)
        except TupperError as error:
            failures.append(f"{name}: {error.message}")
            hint = hint or error.hint
        else:
            say(f"{name}: {said}")
    if not any(probe.usable for probe in await probe_backends()):
        raise BackendUnavailable("; ".join(failures) or "no backend is installed", hint=hint)
    for failure in failures:
        say(failure)
