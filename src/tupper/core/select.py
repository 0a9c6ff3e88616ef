"""Choosing a backend. Pure: probes and wishes in, a choice or a typed refusal out.

Nobody gets weaker isolation than asked for, and nobody gets a backend that has not been proven:
what the probe of a backend says is all that counts.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Sequence

from tupper.core.backend import Isolation, Probe
from tupper.core.errors import BackendNotFound, BackendUnavailable

# Strongest and fastest first; a backend can stand for more than one tier.
_LINUX: tuple[tuple[str, Isolation], ...] = (
    ("firecracker", Isolation.HARDWARE_VM),
    ("qemu", Isolation.HARDWARE_VM),
    ("gvisor", Isolation.USER_KERNEL),
    ("qemu", Isolation.EMULATED_VM),
)
_MACOS: tuple[tuple[str, Isolation], ...] = (
    ("apple", Isolation.HARDWARE_VM),
    ("qemu", Isolation.HARDWARE_VM),
    ("qemu", Isolation.EMULATED_VM),
)


def choose(
    probes: Sequence[Probe],
    wanted: str = "",
    min_isolation: Isolation | None = None,
    *,
    platform: str = sys.platform,
) -> Probe:
    """The probe of the backend to use.

    Args:
        probes: of all installed backends.
        wanted: the name that the user gave; empty for the default.
        min_isolation: the weakest tier that the user accepts.
        platform: as ``sys.platform``; decides the default order.

    Raises:
        BackendNotFound: no backend of the wanted name is installed.
        BackendUnavailable: the wanted one, or every one, is unusable or too weak.
    """
    if wanted:
        return _named(probes, wanted, min_isolation)
    ranked = sorted(probes, key=lambda probe: _rank(probe, platform))
    usable = [probe for probe in ranked if _is_usable(probe)]
    strong = [probe for probe in usable if _is_strong(probe, min_isolation)]
    if strong:
        return strong[0]
    if usable:
        best = max(usable, key=_strength)
        raise BackendUnavailable(
            f"no backend on this host has isolation {min_isolation} or stronger; the strongest is "
            f"{best.backend} with {best.isolation}",
            hint=_remedies(ranked) or "lower min_isolation, or use another host",
        )
    reasons = "; ".join(f"{probe.backend}: {probe.reason}" for probe in ranked)
    raise BackendUnavailable(
        f"no backend can be used on this host: {reasons or 'none is installed'}",
        hint=_remedies(ranked) or "run: tupper setup",
    )


def _named(probes: Sequence[Probe], wanted: str, min_isolation: Isolation | None) -> Probe:
    probe = next((probe for probe in probes if probe.backend == wanted), None)
    if probe is None:
        names = [probe.backend for probe in probes]
        near = difflib.get_close_matches(wanted, names, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"installed: {', '.join(names) or 'none'}"
        raise BackendNotFound(f"no backend is called {wanted!r}", hint=hint)
    if not _is_usable(probe):
        raise BackendUnavailable(
            f"backend {wanted} cannot be used on this host: {probe.reason}",
            hint=probe.remedy or None,
        )
    if not _is_strong(probe, min_isolation):
        raise BackendUnavailable(
            f"backend {wanted} has isolation {probe.isolation}, which is weaker than the "
            f"{min_isolation} that was asked for",
            hint="leave out the backend, or lower min_isolation",
        )
    return probe


def _is_usable(probe: Probe) -> bool:
    """A probe that names no tier has proven nothing."""
    return probe.usable and probe.isolation is not None


def _strength(probe: Probe) -> int:
    return probe.isolation.strength if probe.isolation is not None else 0


def _is_strong(probe: Probe, least: Isolation | None) -> bool:
    return least is None or _strength(probe) >= least.strength


def _rank(probe: Probe, platform: str) -> tuple[int, int, str]:
    """Ours in their order; then those of third parties, the strongest first."""
    order = _MACOS if platform == "darwin" else _LINUX
    for place, (name, tier) in enumerate(order):
        if probe.backend == name and probe.isolation in (tier, None):
            return place, 0, name
    return len(order), -_strength(probe), probe.backend


def _remedies(probes: Sequence[Probe]) -> str:
    return "; ".join(f"{probe.backend}: {probe.remedy}" for probe in probes if probe.remedy)
