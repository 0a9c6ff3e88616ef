"""What a user may set for gVisor, for all sandboxes (``[backends.gvisor]``) or for one."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from tupper.core.errors import InvalidArgument


class Platform(StrEnum):
    """How gVisor catches the system calls of the guest.

    ``systrap`` has the faster system calls, ``ptrace`` the faster process starts on few cores and
    no cost while idle, ``kvm`` needs a working ``/dev/kvm``.
    """

    SYSTRAP = "systrap"
    PTRACE = "ptrace"
    KVM = "kvm"


@dataclass(frozen=True, slots=True)
class Options:
    """Checked options.

    Args:
        platform: None lets the probe choose.
        runsc: a program to use instead of a found one; empty for none. Settings only.
    """

    platform: Platform | None = None
    runsc: str = ""


def parse_options(given: Mapping[str, object], *, settings: bool = False) -> Options:
    """Check options.

    Args:
        given: as the user wrote them.
        settings: whether they come from the settings, where more is allowed.

    Raises:
        InvalidArgument: an unknown name or value; the text suggests the nearest one.
    """
    known = ["platform", "runsc"] if settings else ["platform"]
    for name in given:
        if name not in known:
            raise InvalidArgument(
                f"gvisor has no option {name!r}", hint=_suggestion(name, known, "its options are")
            )
    runsc = given.get("runsc", "")
    if not isinstance(runsc, str):
        raise InvalidArgument(f"gvisor option runsc must be a path, not {runsc!r}")
    return Options(_platform(given.get("platform")), runsc)


def _platform(value: object) -> Platform | None:
    if value in (None, "", "auto"):
        return None
    names = [platform.value for platform in Platform]
    if not isinstance(value, str) or value not in names:
        raise InvalidArgument(
            f"gvisor has no platform {value!r}", hint=_suggestion(str(value), names, "choose from")
        )
    return Platform(value)


def _suggestion(word: str, known: list[str], otherwise: str) -> str:
    near = difflib.get_close_matches(word, known, n=1)
    return f"did you mean {near[0]!r}?" if near else f"{otherwise}: {', '.join(known)}"
