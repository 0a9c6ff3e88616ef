"""What happens to a sandbox when its time is over, as E2B's SDK writes it. No I/O.

Source: ``SandboxLifecycle`` of the ``e2b`` package 2.63.0, which refuses the same combinations.
"""

from __future__ import annotations

from collections.abc import Mapping

from tupper.protocol.connect import as_object
from tupper.sdk._shared.errors import InvalidArgumentException


def snapshot_memory(mode: object, keep_memory: object, *, what: str = "mode") -> bool:
    """Whether memory is saved.

    Args:
        mode: ``full``, ``filesystem`` or None.
        keep_memory: the older form.
        what: the argument, for the complaint.

    Errors:
        InvalidArgumentException: both are given, or a value that is none of them.
    """
    if mode is not None and keep_memory is not None:
        raise InvalidArgumentException(f"{what} and keep_memory: one of them, not both")
    if mode not in (None, "full", "filesystem") or keep_memory not in (None, True, False):
        raise InvalidArgumentException(f"{what}={mode!r}: it is 'full' or 'filesystem'")
    return mode != "filesystem" and keep_memory is not False


def render_lifecycle(lifecycle: Mapping[str, object] | None) -> dict[str, object]:
    """The keys of a create for a lifecycle.

    Errors:
        InvalidArgumentException: a value that cannot be used, or two that exclude each other.
    """
    if not lifecycle:
        return {}
    ends = lifecycle.get("on_timeout")
    long_form = as_object(ends) or {}
    action = long_form.get("action") if long_form else ends
    resumes = lifecycle.get("auto_resume")
    if action not in (None, "kill", "pause"):
        raise InvalidArgumentException(f"on_timeout={action!r}: it is 'kill' or 'pause'")
    if action != "pause" and (resumes or {"mode", "keep_memory"} & set(long_form)):
        raise InvalidArgumentException("mode and auto_resume need on_timeout='pause'")
    memory = snapshot_memory(
        long_form.get("mode"), long_form.get("keep_memory"), what="on_timeout['mode']"
    )
    if resumes and not memory:
        raise InvalidArgumentException("auto_resume needs a pause that keeps the memory")
    body: dict[str, object] = {}
    if action is not None:
        body["autoPause"] = action == "pause"
    if action == "pause" and not memory:
        body["autoPauseMemory"] = False
    if resumes is not None:
        body["autoResume"] = {"enabled": resumes is True}
    return body
