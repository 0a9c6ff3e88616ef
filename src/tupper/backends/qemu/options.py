"""What a user may set for QEMU, for all sandboxes (``[backends.qemu]``) or for one."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from tupper.core.errors import InvalidArgument


class Accel(StrEnum):
    """What runs the guest's instructions: the processor itself, or an emulator."""

    KVM = "kvm"
    TCG = "tcg"


_SETTINGS: tuple[str, ...] = ("accel", "kernel", "modules", "qemu")


@dataclass(frozen=True, slots=True)
class Options:
    """Checked options.

    Args:
        accel: None lets the probe choose.
        qemu: a program to use instead of a found one; empty for none. Settings only.
        kernel: a kernel to use instead of a found one; empty for none. Settings only.
        modules: where the modules of that kernel are; empty for none. Settings only.
    """

    accel: Accel | None = None
    qemu: str = ""
    kernel: str = ""
    modules: str = ""


def parse_options(given: Mapping[str, object], *, settings: bool = False) -> Options:
    """Check options.

    Args:
        given: as the user wrote them.
        settings: whether they come from the settings; one sandbox has none of its own.

    Raises:
        InvalidArgument: an unknown name or value; the text suggests the nearest one.
    """
    known = list(_SETTINGS) if settings else []
    for name in given:
        if name not in known:
            raise InvalidArgument(f"qemu has no option {name!r}", hint=_suggestion(name, known))
    paths = {name: _path(name, given.get(name, "")) for name in ("qemu", "kernel", "modules")}
    return Options(_accel(given.get("accel")), **paths)


def _path(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise InvalidArgument(f"qemu option {name} must be a path, not {value!r}")
    return value


def _accel(value: object) -> Accel | None:
    if value in (None, "", "auto"):
        return None
    names = [accel.value for accel in Accel]
    if not isinstance(value, str) or value not in names:
        raise InvalidArgument(
            f"qemu has no accel {value!r}", hint=f"choose from: auto, {', '.join(names)}"
        )
    return Accel(value)


def _suggestion(word: str, known: list[str]) -> str:
    if not known:
        return "a single sandbox has no options of qemu"
    near = difflib.get_close_matches(word, known, n=1)
    return f"did you mean {near[0]!r}?" if near else f"its options are: {', '.join(known)}"
