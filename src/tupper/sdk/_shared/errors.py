"""The exceptions of the SDK: E2B's tree by name and base, and a few of ours.

Each carries what the server or the agent said in a form that programs can use: ``code`` (stable),
``hint`` (what to do) and ``status_code`` (HTTP, where there was one)::

    TupperError
    ├── AuthenticationException
    │   └── GitAuthException
    ├── ServiceBusyException
    ├── SecretException
    ├── VolumeException
    ├── BuildException
    │   └── FileUploadException
    └── SandboxException
        ├── TimeoutException
        │   ├── SandboxNotRunningException     killed, expired, or dead
        │   └── SandboxUnreachableException    it lives and does not answer
        ├── InvalidArgumentException
        ├── NotFoundException
        │   ├── FileNotFoundException
        │   ├── SandboxNotFoundException
        │   ├── SecretNotFoundException
        │   ├── VolumeNotFoundException
        │   └── VolumePathNotFoundException
        ├── NotEnoughSpaceException
        ├── RateLimitException                 a limit of the host or of the server
        ├── TemplateException
        ├── CommandExitException               a command that did not exit with 0
        ├── GuestUnresponsiveException
        ├── GitUpstreamException
        ├── UnavailableException               also a ServiceBusyException
        ├── ConflictException
        ├── UnsupportedException
        └── ProtocolException                  the other side broke the protocol

Source: the public names of the ``e2b`` package 2.63.0.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Mapping
from typing import Generic

from tupper.core import errors as core
from tupper.core.errors import TupperError
from tupper.protocol.connect import Code, ConnectError, code_from_status
from tupper.sdk._shared.types import CommandResult, OutputT

GONE = "The sandbox was killed or reached its end of life while the request was in flight"
UNREACHABLE = "The sandbox is unreachable: it lives but its agent does not answer"


class _Reported(TupperError):
    """A failure with the facts that came with it.

    Args:
        args: the message.
        status_code: the HTTP status of the answer, if there was one.
        code: the stable code, if it is not the class's own.
        hint: what the user can do.
    """

    def __init__(
        self,
        *args: object,
        status_code: int | None = None,
        code: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(str(args[0]) if args else "", hint=hint)
        self.status_code = status_code
        if code is not None:
            self.code = code


class SandboxException(_Reported):
    """The root of what can go wrong with a sandbox."""


class TimeoutException(SandboxException):
    """A time limit was over: of a command, of a request, or of the sandbox's life."""

    code = "deadline_exceeded"


class SandboxNotRunningException(TimeoutException):
    """The sandbox ended: killed, expired or died. The text says which, where that is known."""

    code = "sandbox_not_running"


class SandboxUnreachableException(TimeoutException):
    """The sandbox lives and does not answer, or nothing listens on the port."""

    code = "machine_unreachable"


class InvalidArgumentException(SandboxException):
    """A value that the caller gave cannot be used."""

    code = "invalid_argument"


class NotEnoughSpaceException(SandboxException):
    """No space left, in the sandbox or on the host."""

    code = "out_of_disk"


class NotFoundException(SandboxException):
    """Something that was named does not exist."""

    code = "not_found"


class FileNotFoundException(NotFoundException):
    """A path does not exist in the sandbox."""

    code = "file_not_found"


class SandboxNotFoundException(NotFoundException):
    """No sandbox has this id or name, or it has ended."""

    code = "sandbox_not_found"


class SecretNotFoundException(NotFoundException):
    """No secret has this id or name."""

    code = "secret_not_found"


class SecretException(_Reported):
    """Something is wrong with a secret, such as its name."""

    code = "secret_error"


class VolumeNotFoundException(NotFoundException):
    """No volume has this id or name."""

    code = "volume_not_found"


class VolumePathNotFoundException(NotFoundException):
    """A path does not exist in the volume."""

    code = "path_not_found"


class VolumeException(_Reported):
    """Something is wrong with a volume: its name is taken, or a sandbox has it."""

    code = "volume_error"


class RateLimitException(SandboxException):
    """A limit was reached: sandboxes, memory, subnets, requests."""

    code = "limit_reached"


class TemplateException(SandboxException):
    """Something is wrong with a template."""

    code = "template_error"


class GuestUnresponsiveException(SandboxException):
    """The sandbox's agent did not answer when its memory was to be saved."""

    code = "guest_unresponsive"


class GitUpstreamException(SandboxException):
    """A branch has no upstream to pull from or push to."""

    code = "git_upstream"


class AuthenticationException(_Reported):
    """No key or token was given, or a wrong one."""

    code = "unauthenticated"


class GitAuthException(AuthenticationException):
    """A git remote wants credentials, or refused those it got."""

    code = "git_auth"


class ServiceBusyException(_Reported):
    """The server cannot take the request now."""

    code = "unavailable"


class BuildException(_Reported):
    """A template could not be built."""

    code = "template_error"


class FileUploadException(BuildException):
    """A file of a template's build context could not be sent."""


class UnavailableException(SandboxException, ServiceBusyException):
    """Not now or not on this host: no usable backend, no background process."""

    code = "unavailable"


class ConflictException(SandboxException):
    """A name is taken, or the thing is in a state that does not allow this."""

    code = "conflict"


class UnsupportedException(SandboxException):
    """It cannot be done here; the text says why."""

    code = "unsupported"


class ProtocolException(SandboxException):
    """The sandbox's agent, or the server, sent what no honest one sends."""

    code = "guest_misbehaved"


class CommandExitException(SandboxException, CommandResult[OutputT], Generic[OutputT]):
    """A command ended with another exit code than 0. It is also the command's result.

    A command that a signal ended has exit code 128 + signal and ``error`` such as
    ``signal: killed``.
    """

    code = "command_failed"

    def __init__(
        self,
        stderr: OutputT,
        stdout: OutputT,
        exit_code: int,
        error: str | None,
        *,
        signal: int = 0,
        limit: str = "",
        dropped_bytes: int = 0,
    ) -> None:
        text = f"Command exited with code {exit_code}" + (f" ({error})" if error else "")
        SandboxException.__init__(self, f"{text}\n{stderr}" if stderr else text)
        self.stderr = stderr
        self.stdout = stdout
        self.exit_code = exit_code
        self.error = error
        self.signal = signal
        self.limit = limit
        self.dropped_bytes = dropped_bytes


_BY_CODE: dict[str, type[_Reported]] = {
    "sandbox_not_found": SandboxNotFoundException,
    "sandbox_not_running": SandboxNotRunningException,
    "machine_unreachable": SandboxUnreachableException,
    "template_error": TemplateException,
    "template_not_found": NotFoundException,
    "image_not_found": NotFoundException,
    "unsupported": UnsupportedException,
    "guest_misbehaved": ProtocolException,
    "sandbox_snapshot_guest_agent_unresponsive": GuestUnresponsiveException,
}

_BY_STATUS: dict[int, type[_Reported]] = {
    400: InvalidArgumentException,
    401: AuthenticationException,
    403: AuthenticationException,
    404: NotFoundException,
    409: ConflictException,
    429: RateLimitException,
    501: UnsupportedException,
    502: SandboxNotRunningException,
    503: UnavailableException,
    504: TimeoutException,
    507: NotEnoughSpaceException,
}

_BY_CONNECT: dict[Code, type[_Reported]] = {
    Code.INVALID_ARGUMENT: InvalidArgumentException,
    Code.UNAUTHENTICATED: AuthenticationException,
    Code.PERMISSION_DENIED: AuthenticationException,
    Code.NOT_FOUND: NotFoundException,
    Code.ALREADY_EXISTS: ConflictException,
    Code.RESOURCE_EXHAUSTED: RateLimitException,
    Code.CANCELED: TimeoutException,
    Code.DEADLINE_EXCEEDED: TimeoutException,
    Code.UNIMPLEMENTED: UnsupportedException,
}


def from_control(status: int, body: dict[str, object] | None) -> _Reported:
    """The exception for an error answer of the control plane.

    Args:
        status: its HTTP status.
        body: its parsed body, if that was an object.
    """
    fields = body or {}
    text, code, hint = fields.get("message"), fields.get("error_code"), fields.get("hint")
    message = text if isinstance(text, str) and text else f"the server answered {status}"
    code = code if isinstance(code, str) else None
    kind = _BY_CODE.get(code or "") or _BY_STATUS.get(status, SandboxException)
    return kind(
        message, status_code=status, code=code, hint=hint if isinstance(hint, str) else None
    )


def volume_failure(error: _Reported) -> _Reported:
    """The exception of a call about volumes, for one of a sandbox."""
    return _instead(error, VolumeException)


def secret_failure(error: _Reported) -> _Reported:
    """The exception of a call about secrets, for one of a sandbox."""
    return _instead(error, SecretException)


def _instead(error: _Reported, kind: type[_Reported]) -> _Reported:
    if type(error) not in (InvalidArgumentException, ConflictException, SandboxException):
        return error
    return kind(error.message, status_code=error.status_code, code=error.code, hint=error.hint)


def from_volume(status: int, body: Mapping[str, object]) -> _Reported:
    """The exception for an error answer of the content of a volume, whose code is a word."""
    text, code = body.get("message"), body.get("code")
    message = text if isinstance(text, str) and text else f"the server answered {status}"
    if status == 404:
        return VolumePathNotFoundException(message, status_code=404)
    kind = _BY_STATUS.get(status, VolumeException)
    if kind in (InvalidArgumentException, ConflictException):
        kind = VolumeException
    return kind(message, status_code=status, code=code if isinstance(code, str) else None)


def sandbox_not_found(error: NotFoundException, sandbox_id: str) -> SandboxNotFoundException:
    """The exception for a sandbox that is not there, whatever the server called it."""
    if isinstance(error, SandboxNotFoundException):
        return error
    return SandboxNotFoundException(
        error.message or f"no sandbox {sandbox_id}", status_code=404, hint=error.hint
    )


def from_connect(error: ConnectError, *, missing: type[_Reported] = NotFoundException) -> _Reported:
    """The exception for an error that the agent reported.

    Args:
        error: what it said.
        missing: the class for "not found".

    Errors:
        Unavailable is ambiguous and stays a :class:`SandboxException`: whoever called asks for
        the sandbox's health and decides.
    """
    if error.code is Code.UNAVAILABLE:
        if "was not found" in error.message:
            return SandboxNotRunningException(GONE)
        return SandboxUnreachableException(error.message)
    if error.code is Code.RESOURCE_EXHAUSTED and "disk" in str(error.details):
        return NotEnoughSpaceException(error.message)
    kind = missing if error.code is Code.NOT_FOUND else _BY_CONNECT.get(error.code)
    if kind is None:
        return SandboxException(f"{error.code}: {error.message}", code=str(error.code))
    return kind(error.message)


def from_status(status: int, message: str) -> _Reported:
    """The exception for an error answer of ``/files`` and the tree routes."""
    if status == 404:
        return FileNotFoundException(message, status_code=status)
    if status == 502:
        text = GONE if "was not found" in message else message
        return SandboxNotRunningException(text, status_code=status)
    kind = _BY_STATUS.get(status)
    if kind is None:
        known = code_from_status(status)
        return SandboxException(f"{status}: {message}", status_code=status, code=str(known))
    return kind(message, status_code=status)


@contextlib.contextmanager
def honest() -> Generator[None]:
    """Turns what no honest agent sends into the SDK's exception."""
    try:
        yield
    except core.GuestMisbehaved as error:
        raise ProtocolException(error.message) from error


def as_bytes(piece: object) -> bytes:
    """A piece of an upload, or the error for what is none."""
    if isinstance(piece, bytes):
        return piece
    if isinstance(piece, bytearray):
        return bytes(piece)
    if isinstance(piece, memoryview):
        return piece.tobytes()
    if isinstance(piece, str):
        return piece.encode()
    raise InvalidArgumentException(f"a piece of type {type(piece).__name__} cannot be written")


def from_core(error: TupperError) -> TupperError:
    """The SDK's exception for one of the lower layers', code and hint kept."""
    if isinstance(error, _Reported):
        return error
    for kind, ours in _FROM_CORE:
        if isinstance(error, kind):
            return ours(error.message, code=error.code, hint=error.hint)
    return SandboxException(error.message, code=error.code, hint=error.hint)


_FROM_CORE: tuple[tuple[type[TupperError], type[_Reported]], ...] = (
    (core.InvalidArgument, InvalidArgumentException),
    (core.NotFound, NotFoundException),
    (core.Unauthenticated, AuthenticationException),
    (core.OutOfDisk, NotEnoughSpaceException),
    (core.LimitReached, RateLimitException),
    (core.DeadlineExceeded, TimeoutException),
    (core.Unavailable, UnavailableException),
    (core.Unsupported, UnsupportedException),
    (core.GuestMisbehaved, ProtocolException),
)
