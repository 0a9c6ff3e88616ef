"""The public surface: sorted, lazy, and such that changing the import line is the whole migration."""

import inspect

import pytest

import tupper
from tupper.sdk import _faces_async, _faces_sync
from tupper.sdk._handles_async import AsyncCommandHandle
from tupper.sdk._handles_sync import CommandHandle, WatchHandle


def test_names_are_sorted_and_importable():
    assert tupper.__all__ == sorted(tupper.__all__)
    for name in tupper.__all__:
        assert getattr(tupper, name) is not None
    with pytest.raises(AttributeError, match="Sandbx"):
        _ = tupper.Sandbx


# Parameters in order, as of e2b 2.63.0; ours may only come after them, by keyword.
SIGNATURES = {
    "create": "template timeout metadata envs secure allow_internet_access mcp network iam "
    "lifecycle volume_mounts logger idempotency_key",
    "list": "query limit next_token order",
    "connect": "sandbox_id timeout",
    "kill": "sandbox_id",
    "set_timeout": "sandbox_id timeout",
    "get_info": "sandbox_id",
    "get_metrics": "sandbox_id start end",
}
OWN = {
    "is_running": "request_timeout",
    "get_host": "port",
    "download_url": "path user use_signature_expiration",
    "upload_url": "path user use_signature_expiration",
}
COMMANDS = {
    "run": "cmd background envs user cwd on_stdout on_stderr stdin timeout request_timeout",
    "connect": "pid timeout request_timeout",
    "kill": "pid request_timeout",
    "list": "request_timeout",
    "send_stdin": "pid data request_timeout",
    "close_stdin": "pid request_timeout",
    "stream_input": "pid",
}
FILES = {
    "read": "path format user request_timeout gzip stream_idle_timeout",
    "write": "path data user request_timeout gzip use_octet_stream metadata",
    "write_files": "files user request_timeout gzip use_octet_stream metadata",
    "list": "path depth user request_timeout",
    "exists": "path user request_timeout",
    "get_info": "path user request_timeout",
    "make_dir": "path user request_timeout",
    "remove": "path user request_timeout",
    "rename": "old_path new_path user request_timeout",
}
WATCH = "path user request_timeout recursive include_entry allow_network_mounts"
ASYNC_WATCH = (
    "path on_event on_exit user request_timeout timeout recursive include_entry "
    "allow_network_mounts"
)
PTY = {
    "create": "size user cwd envs timeout request_timeout",
    "connect": "pid timeout request_timeout",
    "kill": "pid request_timeout",
    "resize": "pid size request_timeout",
    "send_stdin": "pid data request_timeout",
}


def positional(function):
    found = inspect.signature(function).parameters.values()
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [each.name for each in found if each.kind in kinds and each.name != "self"]


@pytest.mark.parametrize("sandbox", [tupper.Sandbox, tupper.AsyncSandbox])
def test_sandboxes_take_what_e2b_takes(sandbox):
    for name, parameters in SIGNATURES.items():
        assert positional(getattr(sandbox, name)) == parameters.split(), name
    for name, parameters in OWN.items():
        assert positional(getattr(sandbox, name)) == parameters.split(), name


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (_faces_sync.Commands, COMMANDS | {"stream_input": "pid data"}),
        (_faces_async.AsyncCommands, COMMANDS | {"connect": COMMANDS["connect"] + " on_stdout on_stderr"}),
        (_faces_sync.Filesystem, FILES | {"watch_dir": WATCH}),
        (_faces_async.AsyncFilesystem, FILES | {"watch_dir": ASYNC_WATCH}),
        (_faces_sync.Pty, PTY),
        (_faces_async.AsyncPty, PTY | {
            "create": "size on_data user cwd envs timeout request_timeout",
            "connect": "pid on_data timeout request_timeout",
        }),
        (CommandHandle, {"wait": "on_pty on_stdout on_stderr", "send_stdin": "data request_timeout"}),
        (AsyncCommandHandle, {"wait": "", "kill": "", "disconnect": ""}),
        (WatchHandle, {"get_new_events": "request_timeout", "stop": "request_timeout"}),
    ],
)  # fmt: skip
def test_parts_take_what_e2b_takes(kind, expected):
    for name, parameters in expected.items():
        found = positional(getattr(kind, name))
        assert found[: len(parameters.split())] == parameters.split(), name


def test_defaults_are_e2bs():
    run = inspect.signature(_faces_sync.Commands.run).parameters
    assert (run["timeout"].default, run["stdin"].default) == (60, None)
    watch = inspect.signature(_faces_async.AsyncFilesystem.watch_dir).parameters
    assert watch["timeout"].default == 60
    assert tupper.Sandbox.default_template == "base"
    assert tupper.Sandbox.default_sandbox_timeout == 300


BASES = {
    "TimeoutException": "SandboxException",
    "SandboxNotRunningException": "TimeoutException",
    "SandboxUnreachableException": "TimeoutException",
    "InvalidArgumentException": "SandboxException",
    "NotEnoughSpaceException": "SandboxException",
    "NotFoundException": "SandboxException",
    "FileNotFoundException": "NotFoundException",
    "SandboxNotFoundException": "NotFoundException",
    "RateLimitException": "SandboxException",
    "TemplateException": "SandboxException",
    "CommandExitException": "CommandResult",
    "GuestUnresponsiveException": "SandboxException",
    "FileUploadException": "BuildException",
    "GitAuthException": "AuthenticationException",
    "UnavailableException": "ServiceBusyException",
}


def test_exceptions_have_e2bs_bases():
    for name, base in BASES.items():
        assert issubclass(getattr(tupper, name), getattr(tupper, base)), name
    for name in ("AuthenticationException", "ServiceBusyException", "BuildException"):
        assert not issubclass(getattr(tupper, name), tupper.SandboxException), name
    error = tupper.SandboxException("text", status_code=500)
    assert (str(error), error.status_code, error.code) == ("text", 500, "internal")


def test_values_are_compared_and_built_by_name():
    assert tupper.CommandResult(stderr="", stdout="a", exit_code=0, error=None).stdout == "a"
    assert tupper.PtySize(24, 80) == tupper.PtySize(rows=24, cols=80)
    assert tupper.FileType("dir") is tupper.FileType.DIR
    assert tupper.SandboxState("paused") == "paused"


def test_signatures_of_links():
    found = tupper.get_signature("a.txt", "read", None, "tok")
    assert found == {
        "signature": "v1_gDv73H8R9a10OdCSX0/JNMqMYLPpmCQAYJY+U68oQjM",
        "expiration": None,
    }
    with pytest.raises(ValueError, match="token"):
        tupper.get_signature("a", "read", None, None)
