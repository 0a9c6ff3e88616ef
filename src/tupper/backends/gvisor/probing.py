"""Whether this host can run gVisor, with which program and on which platform.

The answer costs a second or two, so it is kept in a file, with the program's hash and the
kernel's release as the key: a reboot does not ask again, a new kernel or runsc does.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from tupper.backends.gvisor.inside import Try
from tupper.backends.gvisor.options import Options, Platform
from tupper.backends.gvisor.program import Program, candidates, look_at
from tupper.backends.gvisor.trial import Run, Trial, run_trial, try_out
from tupper.backends.gvisor.user import try_machine
from tupper.core.backend import Capability, Isolation, Probe
from tupper.core.cgroup import find_hierarchy
from tupper.core.paths import make_private
from tupper.core.userns import Obstacle, find_obstacle

_CACHE_FORMAT = 2
_SAVING = frozenset({Capability.SNAPSHOT, Capability.RESTORE, Capability.SAVE_MOUNTS})
_REMEDY = "run: tupper setup"
_FOR_USERS = (
    "as an ordinary user: memory and disk are guarded, not limited (a sandbox that goes over is "
    "ended), cpus are whole cores, no builds"
)


@dataclass(frozen=True, slots=True)
class Found:
    """What there is to start machines with.

    Args:
        probe: for people.
        runsc: the program; None when not usable.
        platform: the one to use; None when not usable.
        platforms: all that work.
        saving: those of them on which machines can be saved and restored.
    """

    probe: Probe
    runsc: Path | None = None
    platform: Platform | None = None
    platforms: frozenset[Platform] = frozenset()
    saving: frozenset[Platform] = frozenset()


def choose(trials: Sequence[Trial], wanted: Platform | None) -> Trial | None:
    """The platform to use: the wanted one, or the best that works.

    systrap goes first although the clock often favours ptrace, because of what happens when a guest
    takes too much memory: under systrap it loses a process, under ptrace the whole sandbox ends.
    Between others the one that starts processes fastest wins. Source: docs/design/gvisor.md.
    """
    works = [trial for trial in trials if trial.works]
    if wanted is not None:
        return next((trial for trial in works if trial.platform is wanted), None)
    return min(works, key=lambda t: (t.platform is not Platform.SYSTRAP, t.start_ms), default=None)


class Prober:
    """Finds a program, tries it, remembers.

    Args:
        home: ``data_dir / "backends" / "gvisor"``.
        settings: checked settings.
    """

    def __init__(self, home: Path, settings: Options) -> None:
        self._home = home
        self._settings = settings
        self._found: Found | None = None
        self._lock = asyncio.Lock()

    def forget(self) -> None:
        """Look again at the next call: something was installed."""
        self._found = None

    async def find(self) -> Found:
        """The best program that works, or why there is none. Never raises for a poor host."""
        async with self._lock:
            if self._found is None or not self._found.probe.usable:
                self._found = await self._look()
            return self._found

    async def why_not(self, platform: Platform) -> str:
        """Why a platform does not work with the found program; empty if it does."""
        found = await self.find()
        if found.runsc is None:
            return found.probe.reason
        if platform in found.platforms:
            return ""
        async with self._lock:
            program = await look_at(found.runsc, "")
            trial = (await self._trials(program, (platform,)))[0]
            if trial.works:
                saves = [] if trial.saves_not else [platform]
                saving = found.saving.union(saves)
                platforms = found.platforms | {platform}
                self._found = replace(found, platforms=platforms, saving=saving)
        return trial.reason

    async def _look(self) -> Found:
        if missing := await _missing():
            remedy = f"run: {missing.remedy}" if missing.remedy else ""
            return Found(Probe("gvisor", usable=False, reason=missing.reason, remedy=remedy))
        reasons: list[str] = []
        for path, origin in candidates(self._home, self._settings.runsc):
            try:
                program = await look_at(path, origin)
            except OSError as error:
                reasons.append(f"{path}: {error.strerror}")
                continue
            found = await self._judge(program)
            if found.probe.usable:
                return found
            reasons.append(found.probe.reason)
        reason = "; ".join(reasons) or "no program runsc was found"
        return Found(Probe("gvisor", usable=False, reason=reason, remedy=_REMEDY))

    async def _judge(self, program: Program) -> Found:
        wanted = self._settings.platform
        platforms = (wanted,) if wanted else (Platform.PTRACE, Platform.SYSTRAP)
        trials = await self._trials(program, platforms)
        best = choose(trials, wanted)
        if best is None:
            why = "; ".join(dict.fromkeys(trial.reason for trial in trials))
            return Found(Probe("gvisor", usable=False, reason=f"{program.path}: {why}"))
        details = {"runsc": str(program.path), "origin": program.origin, "sha256": program.digest}
        for trial in trials:
            details[f"platform.{trial.platform}"] = _describe(trial)
        details["snapshots"] = best.saves_not or "yes"
        probe = Probe(
            "gvisor",
            usable=True,
            reason="; ".join(shortcomings()),
            isolation=Isolation.USER_KERNEL,
            mechanism=f"gVisor {best.platform}",
            kernel=best.kernel,
            version=program.version,
            capabilities=capabilities().union([] if best.saves_not else _SAVING),
            details=details,
        )
        works = [trial for trial in trials if trial.works]
        saving = frozenset(trial.platform for trial in works if not trial.saves_not)
        usable = frozenset(trial.platform for trial in works)
        return Found(probe, program.path, best.platform, usable, saving)

    async def _trials(self, program: Program, platforms: Sequence[Platform]) -> list[Trial]:
        """One after the other, so that they do not disturb each other's clocks."""
        make_private(self._home)
        key = f"{program.digest} {os.uname().release} {os.geteuid()}"
        known = self._read_cache(key)
        for platform in platforms:
            if platform not in known:
                trial = await try_out(program.path, platform, self._home, how=_how())
                known[platform] = trial
                self._write_cache(key, known)
        return [known[platform] for platform in platforms]

    def _read_cache(self, key: str) -> dict[Platform, Trial]:
        """Trials that worked; one that did not is tried again."""
        out: dict[Platform, Trial] = {}
        try:
            data = json.loads((self._home / "probe.json").read_text())
            if data["format"] == _CACHE_FORMAT and data["key"] == key:
                for item in data["trials"]:
                    trial = Trial.from_json(item)
                    if trial.works:
                        out[trial.platform] = trial
        except (OSError, ValueError, KeyError, TypeError):
            return {}
        return out

    def _write_cache(self, key: str, trials: dict[Platform, Trial]) -> None:
        data = {
            "format": _CACHE_FORMAT,
            "key": key,
            "trials": [asdict(trial) for trial in trials.values()],
        }
        fresh = self._home / f"probe.json.{os.getpid()}"
        fresh.write_text(json.dumps(data, indent=1))
        fresh.replace(self._home / "probe.json")


def _describe(trial: Trial) -> str:
    if not trial.works:
        return trial.reason
    return f"{trial.start_ms:g} ms per process, {trial.idle_percent:g} % of a core when idle"


def _how() -> Run:
    if os.geteuid() == 0:
        return run_trial
    return lambda runsc, platform, place: try_machine(Try(runsc, platform, place))


async def _missing() -> Obstacle | None:
    """What every program would lack here."""
    if os.geteuid() != 0:
        return await find_obstacle()
    if not os.access("/dev/loop-control", os.F_OK):
        return Obstacle("the kernel has no loop devices", "modprobe loop")
    return None


def capabilities() -> frozenset[Capability]:
    """What works on this host for this user."""
    found = {Capability.PAUSE, Capability.MOUNTS, Capability.NETWORK}
    if os.geteuid() != 0:
        return frozenset(found)
    found.add(Capability.DISK_LIMIT)
    hierarchy = find_hierarchy()
    if hierarchy is not None:
        found.add(Capability.MEMORY_LIMIT)
        if "cpu" in hierarchy.roots:
            found.add(Capability.CPU_LIMIT)
    return frozenset(found)


def shortcomings() -> list[str]:
    """What does not work here although machines start."""
    if os.geteuid() != 0:
        return [_FOR_USERS]
    if find_hierarchy() is None:
        return ["no control groups here: memory and cpus are not limited"]
    return []
