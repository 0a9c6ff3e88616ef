"""Whether this host can run QEMU machines, with which kernel, and what runs their instructions.

The proof is a boot: the kernel and our first file system, which say who they are and end. It is
tried with KVM where some instructions have run there, and then with the emulator. The answer is
kept in a file, by the program, the guest's kernel, the host's kernel and the user.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from tupper.backends.qemu import console, copying, kvm
from tupper.backends.qemu.artifacts import Artifacts, probe_guest
from tupper.backends.qemu.launch import Guest, Launch, launch, make_directories, uid_of
from tupper.backends.qemu.layout import Layout
from tupper.backends.qemu.options import Accel, Options
from tupper.backends.qemu.program import OLDEST, PACKAGES, Program, find, look_at
from tupper.backends.qemu.remains import Remains
from tupper.core import kernel
from tupper.core.backend import Capability, Isolation, Mount, Probe
from tupper.core.cgroup import find_hierarchy
from tupper.core.errors import DeadlineExceeded, TupperError
from tupper.core.paths import make_private
from tupper.core.userns import find_obstacle
from tupper.protocol.connect import as_object

_BACKEND = "qemu"
_CACHE_FORMAT = 2
_SIGN = "tupper: probe "
_MEMORY_MIB = 128
# A boot takes one to three seconds; a host under load, or one emulator inside another, more.
_LIMIT_S = {Accel.KVM: 20.0, Accel.TCG: 60.0}
# Every start asks all backends: one that hangs must not hold up the others each time.
_AGAIN_S = 300.0
# Nor may one that is not there cost each of them a look.
_LOOK_AGAIN_S = 10.0
_TIERS = {Accel.KVM: Isolation.HARDWARE_VM, Accel.TCG: Isolation.EMULATED_VM}
_RELEASE = re.compile(rf"{_SIGN}(\S{{1,64}})")


@dataclass(frozen=True, slots=True)
class Found:
    """What there is to start machines with.

    Args:
        probe: for people.
        program: QEMU; None when not usable.
        accel: what runs instructions; None when not usable.
        artifacts: the guest's kernel; None when not usable.
    """

    probe: Probe
    program: Program | None = None
    accel: Accel | None = None
    artifacts: Artifacts | None = None


@dataclass(frozen=True, slots=True)
class Trial:
    """How one boot went.

    Args:
        works: whether the guest said who it is.
        kernel: its release.
        boot_ms: how long that took.
        reason: why not.
        remedy: what to do about it.
        mounts: why directories of the host cannot be shown; empty if they can.
        is_late: whether it had said nothing until its time was over.
    """

    works: bool
    kernel: str = ""
    boot_ms: int = 0
    reason: str = ""
    remedy: str = ""
    mounts: str = ""
    is_late: bool = False


class Prober:
    """Finds a program and a kernel, tries them, remembers.

    Args:
        home: ``data_dir / "backends" / "qemu"``.
        settings: checked settings.
        find_guest: finds the guest's kernel.
    """

    def __init__(
        self,
        home: Path,
        settings: Options,
        find_guest: Callable[[Path, Options], Awaitable[Artifacts]],
    ) -> None:
        self._home = home
        self._settings = settings
        self._find_guest = find_guest
        self._found: Found | None = None
        self._look_at = 0.0
        self._failed: dict[tuple[str, Accel], tuple[float, Trial]] = {}
        self._lock = asyncio.Lock()

    async def find(self) -> Found:
        """What works, or why nothing does. Never raises for a poor host."""
        async with self._lock:
            found = self._found
            if found is None or (not found.probe.usable and time.monotonic() > self._look_at):
                found = self._found = await self._look()
                self._look_at = time.monotonic() + _LOOK_AGAIN_S
            return found

    async def _look(self) -> Found:
        machine = os.uname().machine
        package = PACKAGES.get(machine)
        if package is None:
            return _unusable(f"there is no QEMU backend for the processor {machine}")
        if os.geteuid() != 0 and (missing := await find_obstacle()) is not None:
            # Its network would be missing, and every sandbox has one.
            return _unusable(missing.reason, f"run: {missing.remedy}" if missing.remedy else "")
        remedy = f"sudo apt-get install --no-install-recommends {package}"
        path = find(self._settings.qemu)
        if path is None:
            return _unusable(f"qemu-system-{machine} is not installed", remedy)
        try:
            program = await look_at(path)
        except OSError as error:
            return _unusable(f"{path}: {error.strerror}", remedy)
        if program.numbers < OLDEST:
            said = program.version or "no version"
            least = ".".join(map(str, OLDEST))
            return _unusable(f"{path} says {said}, and QEMU {least} is needed", remedy)
        try:
            artifacts = await self._find_guest(self._home, self._settings)
        except (TupperError, OSError) as error:
            hint = getattr(error, "hint", None) or "run: tupper setup"
            return _unusable(f"no kernel for the guests: {error}", hint)
        return await self._judge(program, artifacts)

    async def _judge(self, program: Program, artifacts: Artifacts) -> Found:
        wanted = self._settings.accel
        details = {"qemu": str(program.path), "guest": artifacts.source, "snapshots": "yes"}
        failed: list[Trial] = []
        for accel in (wanted,) if wanted else (Accel.KVM, Accel.TCG):
            trial = await self._trial(program, artifacts, accel)
            details[accel.value] = f"{trial.boot_ms} ms" if trial.works else trial.reason
            if trial.works:
                details["mounts"] = trial.mounts or "yes"
                probe = _usable(program, accel, trial, details)
                reason, remedy = _sum_up(failed)
                return Found(
                    replace(probe, reason=reason, remedy=remedy), program, accel, artifacts
                )
            failed.append(replace(trial, reason=f"no {accel.value}: {trial.reason}"))
        return _unusable(*_sum_up(failed))

    async def _trial(self, program: Program, artifacts: Artifacts, accel: Accel) -> Trial:
        """Once for each program, kernel, host and user; one that failed is tried again later."""
        key = f"{program.key} {artifacts.key} {os.uname().release} {os.geteuid()}"
        until, failed = self._failed.get((key, accel), (0.0, None))
        if failed is not None and time.monotonic() < until:
            return failed
        trial = await self._try(program, artifacts, accel, key)
        if not trial.works:
            self._failed[key, accel] = (time.monotonic() + _AGAIN_S, trial)
        return trial

    async def _try(self, program: Program, artifacts: Artifacts, accel: Accel, key: str) -> Trial:
        if accel is Accel.KVM and (obstacle := await kvm.why_not()):
            return Trial(works=False, reason=obstacle.reason, remedy=obstacle.remedy)
        make_private(self._home)
        cache = self._home / f"probe-{accel}.json"
        if (known := _read_cache(cache, key)) is not None:
            return known
        trial = await self._boot(program, artifacts, accel)
        if trial.works:
            data = {"format": _CACHE_FORMAT, "key": key, "trial": asdict(trial)}
            fresh = cache.with_suffix(f".{os.getpid()}")
            fresh.write_text(json.dumps(data))
            fresh.replace(cache)
        return trial

    async def _boot(self, program: Program, artifacts: Artifacts, accel: Accel) -> Trial:
        """With a directory of the host; where that is what fails, without."""
        with tempfile.TemporaryDirectory(prefix="shared-", dir=self._home) as name:
            shared = await asyncio.to_thread(Path(name).resolve)
            trial = await try_boot(program, artifacts, accel, (Mount(shared, "/"),))
        if trial.works or trial.is_late:
            return trial
        without = await try_boot(program, artifacts, accel)
        return replace(without, mounts=trial.reason) if without.works else trial


async def try_boot(
    program: Program, artifacts: Artifacts, accel: Accel, mounts: tuple[Mount, ...] = ()
) -> Trial:
    """Boot a guest that says who it is, and nothing else."""
    with tempfile.TemporaryDirectory(prefix="tupper-probe-") as place:
        name = f"probe-{Path(place).name}"
        remains = Remains(Layout(Path(place) / "machine"), name, None)
        try:
            return await _boot(remains, probe_guest(artifacts, accel), program, accel, mounts)
        except (TupperError, OSError) as error:
            words = remains.last_words()
            reason = f"{error}; {words[-500:]}" if words else str(error)
            is_late = isinstance(error, DeadlineExceeded)
            return Trial(works=False, reason=reason, is_late=is_late)
        finally:
            await remains.remove()


async def _boot(
    remains: Remains, guest: Guest, program: Program, accel: Accel, mounts: tuple[Mount, ...]
) -> Trial:
    began = time.monotonic()
    ram = copying.memory(_MEMORY_MIB)

    def work() -> socket.socket:
        make_directories(remains.layout, uid_of(remains.host_name))
        what = Launch(
            host_name=remains.host_name,
            layout=remains.layout,
            program=program.path,
            accel=accel,
            guest=guest,
            memory_mib=_MEMORY_MIB,
            cpus=1,
            ram=ram.descriptor,
            mounts=mounts,
            has_agent=False,
        )
        return launch(what).console

    with await kernel.in_thread(work, name="qemu-probe", drop=socket.socket.close) as line:
        said = await console.hear(line, _SIGN, timeout_s=_LIMIT_S[accel])
    match = _RELEASE.search(said)
    took_ms = round((time.monotonic() - began) * 1000)
    return Trial(works=True, kernel=match[1] if match else "", boot_ms=took_ms)


def _unusable(reason: str, remedy: str = "") -> Found:
    return Found(Probe(_BACKEND, usable=False, reason=reason, remedy=remedy))


def _sum_up(failed: Sequence[Trial]) -> tuple[str, str]:
    """Reason and remedy of what does not work."""
    remedies = [trial.remedy for trial in failed if trial.remedy]
    return "; ".join(trial.reason for trial in failed), "; ".join(remedies)


def _usable(program: Program, accel: Accel, trial: Trial, details: dict[str, str]) -> Probe:
    return Probe(
        _BACKEND,
        usable=True,
        isolation=_TIERS[accel],
        mechanism=f"QEMU {accel.value.upper()}",
        kernel=trial.kernel,
        version=program.version,
        capabilities=capabilities(mounts=not trial.mounts),
        details=details,
    )


def capabilities(*, mounts: bool) -> frozenset[Capability]:
    """What works on this host for this user. Memory and disk are the guest's own, so limited.

    Args:
        mounts: whether directories of the host can be shown.
    """
    found = {
        Capability.PAUSE, Capability.SNAPSHOT, Capability.RESTORE, Capability.NETWORK,
        Capability.DISK_LIMIT, Capability.MEMORY_LIMIT,
    }  # fmt: skip
    if mounts:
        found.add(Capability.MOUNTS)
    hierarchy = find_hierarchy() if os.geteuid() == 0 else None
    if hierarchy is not None and "cpu" in hierarchy.roots:
        found.add(Capability.CPU_LIMIT)
    return frozenset(found)


def _read_cache(cache: Path, key: str) -> Trial | None:
    try:
        data = as_object(json.loads(cache.read_text())) or {}
        trial = as_object(data.get("trial"))
        if data.get("format") == _CACHE_FORMAT and data.get("key") == key and trial is not None:
            return Trial(
                works=trial["works"] is True,
                kernel=str(trial["kernel"]),
                boot_ms=int(str(trial["boot_ms"])),
                mounts=str(trial["mounts"]),
            )
    except (OSError, ValueError, KeyError):
        return None
    return None
