"""The tree of errors. Every failure that a user can meet is one of these.

An error is told from another by its class or its stable ``code``, never by its text. The text
names the thing, the number and the unit; ``hint`` says what to do about it::

    TupperError
    ├── InvalidArgument          a value the caller gave cannot be used
    ├── Unauthenticated          no key or token, or the wrong one
    ├── PermissionDenied         known, but not allowed
    ├── NotFound
    │   ├── SandboxNotFound
    │   ├── TemplateNotFound
    │   ├── SnapshotNotFound
    │   ├── ImageNotFound
    │   ├── BackendNotFound
    │   └── ProfileNotFound
    ├── AlreadyExists            a name or a port is taken
    ├── Conflict                 the thing is in a state that does not allow this
    ├── Unsupported              a backend cannot do it, and says why
    ├── LimitReached
    │   ├── OutOfDisk            the host's disk, or a sandbox's
    │   ├── OutOfMemory
    │   └── CapacityReached      as many sandboxes, ports or subnets as there may be
    ├── DeadlineExceeded
    ├── Unavailable              not now, or not on this host
    │   ├── BackendUnavailable
    │   ├── DaemonUnavailable
    │   └── MachineUnreachable
    ├── ProgramFailed            a helper program on the host
    │   └── ProgramNotFound
    ├── ImageError
    │   ├── ImagePullFailed
    │   ├── ImageRejected        a digest that does not match, a hostile layer
    │   └── PlatformNotFound     a multi-platform image without ours
    ├── TemplateError            a recipe or a Dockerfile step failed
    ├── NetworkError
    ├── MachineFailed            a machine did not start
    ├── GuestMisbehaved          a reply from a guest that no honest agent sends
    └── StoreError               the data directory: locked, foreign, too new
"""

from __future__ import annotations


class TupperError(Exception):
    """The root of the tree.

    Args:
        message: names the thing, the number and the unit.
        hint: what the user can do about it.
    """

    code: str = "internal"

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class InvalidArgument(TupperError):
    """A value that the caller gave cannot be used."""

    code = "invalid_argument"


class Unauthenticated(TupperError):
    """No key or token was given, or a wrong one."""

    code = "unauthenticated"


class PermissionDenied(TupperError):
    """The caller is known, but may not do this."""

    code = "permission_denied"


class NotFound(TupperError):
    """Something that was named does not exist."""

    code = "not_found"


class SandboxNotFound(NotFound):
    """No sandbox has this id or name, or it has ended."""

    code = "sandbox_not_found"


class TemplateNotFound(NotFound):
    """No template has this name."""

    code = "template_not_found"


class SnapshotNotFound(NotFound):
    """No snapshot has this id or name."""

    code = "snapshot_not_found"


class ImageNotFound(NotFound):
    """The image is neither in the store nor at its source."""

    code = "image_not_found"


class BackendNotFound(NotFound):
    """No backend of this name is installed."""

    code = "backend_not_found"


class ProfileNotFound(NotFound):
    """The configuration has no profile of this name."""

    code = "profile_not_found"


class AlreadyExists(TupperError):
    """A name, a path or a port is taken."""

    code = "already_exists"


class Conflict(TupperError):
    """The thing is in a state that does not allow this."""

    code = "conflict"


class Unsupported(TupperError):
    """A backend cannot do an operation, and says why."""

    code = "unsupported"

    def __init__(self, backend: str, operation: str, reason: str = "") -> None:
        super().__init__(
            f"{backend} does not support {operation}" + (f": {reason}" if reason else "")
        )
        self.backend = backend
        self.operation = operation


class LimitReached(TupperError):
    """A limit was hit."""

    code = "limit_reached"


class OutOfDisk(LimitReached):
    """Not enough disk, on the host or in a sandbox."""

    code = "out_of_disk"


class OutOfMemory(LimitReached):
    """Not enough memory, on the host or in a sandbox."""

    code = "out_of_memory"


class CapacityReached(LimitReached):
    """As many sandboxes, ports or subnets as there may be."""

    code = "capacity_reached"


class DeadlineExceeded(TupperError):
    """A wait was not over in its time."""

    code = "deadline_exceeded"


class Unavailable(TupperError):
    """Not now, or not on this host."""

    code = "unavailable"


class BackendUnavailable(Unavailable):
    """The backend cannot be used on this host; the text is its probe's reason."""

    code = "backend_unavailable"


class DaemonUnavailable(Unavailable):
    """The background process did not answer."""

    code = "daemon_unavailable"


class MachineUnreachable(Unavailable):
    """The machine lives and its agent does not answer."""

    code = "machine_unreachable"


class ProgramFailed(TupperError):
    """A helper program on the host failed; the text carries its last output."""

    code = "program_failed"

    def __init__(
        self,
        message: str,
        *,
        returncode: int | None = None,
        output: str = "",
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.returncode = returncode
        self.output = output


class ProgramNotFound(ProgramFailed):
    """A helper program is not installed."""

    code = "program_not_found"


class ImageError(TupperError):
    """Something is wrong with an image."""

    code = "image_error"


class ImagePullFailed(ImageError):
    """The registry or the archive could not be read."""

    code = "image_pull_failed"


class ImageRejected(ImageError):
    """A digest does not match, or a layer tries what no layer may."""

    code = "image_rejected"


class PlatformNotFound(ImageError):
    """A multi-platform image has nothing for this machine."""

    code = "platform_not_found"


class TemplateError(TupperError):
    """A recipe or a Dockerfile step failed; the text names the step."""

    code = "template_error"


class NetworkError(TupperError):
    """A network for a sandbox could not be made."""

    code = "network_error"


class MachineFailed(TupperError):
    """A machine did not start; the text carries its last words."""

    code = "machine_failed"


class GuestMisbehaved(TupperError):
    """A reply from a guest that no honest agent sends."""

    code = "guest_misbehaved"


class StoreError(TupperError):
    """The data directory is locked, foreign, damaged or too new."""

    code = "store_error"
