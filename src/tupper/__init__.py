"""tupper: sandboxes for AI agents on your own machine, each under its own kernel.

The public names are imported when they are used, so that importing this package costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tupper.core.backend import Isolation as Isolation
    from tupper.core.errors import TupperError as TupperError
    from tupper.sdk._async.copies import AsyncSnapshotPaginator as AsyncSnapshotPaginator
    from tupper.sdk._async.events import AsyncSandboxEvents as AsyncSandboxEvents
    from tupper.sdk._async.files import AsyncFileStreamReader as AsyncFileStreamReader
    from tupper.sdk._async.git import AsyncGit as AsyncGit
    from tupper.sdk._async.paginator import AsyncSandboxPaginator as AsyncSandboxPaginator
    from tupper.sdk._async.sandbox import AsyncSandbox as AsyncSandbox
    from tupper.sdk._async.secret import AsyncSecret as AsyncSecret
    from tupper.sdk._async.secret import AsyncSecretPaginator as AsyncSecretPaginator
    from tupper.sdk._async.template import AsyncTemplate as AsyncTemplate
    from tupper.sdk._async.volume import AsyncVolume as AsyncVolume
    from tupper.sdk._faces_async import AsyncCommandInputHandle as AsyncCommandInputHandle
    from tupper.sdk._handles_async import (
        AsyncCommandHandle as AsyncCommandHandle,
    )
    from tupper.sdk._handles_async import (
        AsyncWatchHandle as AsyncWatchHandle,
    )
    from tupper.sdk._handles_sync import CommandHandle as CommandHandle
    from tupper.sdk._handles_sync import WatchHandle as WatchHandle
    from tupper.sdk._shared.build_logger import default_build_logger as default_build_logger
    from tupper.sdk._shared.builder import TemplateBase as TemplateBase
    from tupper.sdk._shared.builder import TemplateClass as TemplateClass
    from tupper.sdk._shared.errors import (
        AuthenticationException as AuthenticationException,
    )
    from tupper.sdk._shared.errors import (
        BuildException as BuildException,
    )
    from tupper.sdk._shared.errors import (
        CommandExitException as CommandExitException,
    )
    from tupper.sdk._shared.errors import (
        ConflictException as ConflictException,
    )
    from tupper.sdk._shared.errors import (
        FileNotFoundException as FileNotFoundException,
    )
    from tupper.sdk._shared.errors import (
        FileUploadException as FileUploadException,
    )
    from tupper.sdk._shared.errors import (
        GitAuthException as GitAuthException,
    )
    from tupper.sdk._shared.errors import (
        GitUpstreamException as GitUpstreamException,
    )
    from tupper.sdk._shared.errors import (
        GuestUnresponsiveException as GuestUnresponsiveException,
    )
    from tupper.sdk._shared.errors import (
        InvalidArgumentException as InvalidArgumentException,
    )
    from tupper.sdk._shared.errors import (
        NotEnoughSpaceException as NotEnoughSpaceException,
    )
    from tupper.sdk._shared.errors import (
        NotFoundException as NotFoundException,
    )
    from tupper.sdk._shared.errors import (
        ProtocolException as ProtocolException,
    )
    from tupper.sdk._shared.errors import (
        RateLimitException as RateLimitException,
    )
    from tupper.sdk._shared.errors import (
        SandboxException as SandboxException,
    )
    from tupper.sdk._shared.errors import (
        SandboxNotFoundException as SandboxNotFoundException,
    )
    from tupper.sdk._shared.errors import (
        SandboxNotRunningException as SandboxNotRunningException,
    )
    from tupper.sdk._shared.errors import (
        SandboxUnreachableException as SandboxUnreachableException,
    )
    from tupper.sdk._shared.errors import SecretException as SecretException
    from tupper.sdk._shared.errors import SecretNotFoundException as SecretNotFoundException
    from tupper.sdk._shared.errors import (
        ServiceBusyException as ServiceBusyException,
    )
    from tupper.sdk._shared.errors import (
        TemplateException as TemplateException,
    )
    from tupper.sdk._shared.errors import (
        TimeoutException as TimeoutException,
    )
    from tupper.sdk._shared.errors import (
        UnavailableException as UnavailableException,
    )
    from tupper.sdk._shared.errors import (
        UnsupportedException as UnsupportedException,
    )
    from tupper.sdk._shared.errors import VolumeException as VolumeException
    from tupper.sdk._shared.errors import VolumeNotFoundException as VolumeNotFoundException
    from tupper.sdk._shared.errors import VolumePathNotFoundException as VolumePathNotFoundException
    from tupper.sdk._shared.events import SandboxEvent as SandboxEvent
    from tupper.sdk._shared.events import SandboxEventType as SandboxEventType
    from tupper.sdk._shared.git import GitBranches as GitBranches
    from tupper.sdk._shared.git import GitFileStatus as GitFileStatus
    from tupper.sdk._shared.git import GitResetMode as GitResetMode
    from tupper.sdk._shared.git import GitStatus as GitStatus
    from tupper.sdk._shared.ready import ReadyCmd as ReadyCmd
    from tupper.sdk._shared.ready import wait_for_file as wait_for_file
    from tupper.sdk._shared.ready import wait_for_port as wait_for_port
    from tupper.sdk._shared.ready import wait_for_process as wait_for_process
    from tupper.sdk._shared.ready import wait_for_timeout as wait_for_timeout
    from tupper.sdk._shared.ready import wait_for_url as wait_for_url
    from tupper.sdk._shared.secret import SecretInfo as SecretInfo
    from tupper.sdk._shared.signature import Signature as Signature
    from tupper.sdk._shared.signature import get_signature as get_signature
    from tupper.sdk._shared.template import BuildInfo as BuildInfo
    from tupper.sdk._shared.template import BuildStatusReason as BuildStatusReason
    from tupper.sdk._shared.template import CopyItem as CopyItem
    from tupper.sdk._shared.template import LogEntry as LogEntry
    from tupper.sdk._shared.template import LogEntryEnd as LogEntryEnd
    from tupper.sdk._shared.template import LogEntryLevel as LogEntryLevel
    from tupper.sdk._shared.template import LogEntryStart as LogEntryStart
    from tupper.sdk._shared.template import TemplateBuildStatus as TemplateBuildStatus
    from tupper.sdk._shared.template import (
        TemplateBuildStatusResponse as TemplateBuildStatusResponse,
    )
    from tupper.sdk._shared.template import TemplateTag as TemplateTag
    from tupper.sdk._shared.template import TemplateTagInfo as TemplateTagInfo
    from tupper.sdk._shared.types import (
        ALL_TRAFFIC as ALL_TRAFFIC,
    )
    from tupper.sdk._shared.types import (
        ApiParams as ApiParams,
    )
    from tupper.sdk._shared.types import (
        AsyncWriteData as AsyncWriteData,
    )
    from tupper.sdk._shared.types import (
        AsyncWriteEntry as AsyncWriteEntry,
    )
    from tupper.sdk._shared.types import (
        CommandResult as CommandResult,
    )
    from tupper.sdk._shared.types import (
        EntryInfo as EntryInfo,
    )
    from tupper.sdk._shared.types import (
        FilesystemEvent as FilesystemEvent,
    )
    from tupper.sdk._shared.types import (
        FilesystemEventType as FilesystemEventType,
    )
    from tupper.sdk._shared.types import (
        FileType as FileType,
    )
    from tupper.sdk._shared.types import (
        Mount as Mount,
    )
    from tupper.sdk._shared.types import (
        OutputHandler as OutputHandler,
    )
    from tupper.sdk._shared.types import (
        ProcessInfo as ProcessInfo,
    )
    from tupper.sdk._shared.types import (
        ProxyTypes as ProxyTypes,
    )
    from tupper.sdk._shared.types import (
        PtyOutput as PtyOutput,
    )
    from tupper.sdk._shared.types import (
        PtySize as PtySize,
    )
    from tupper.sdk._shared.types import (
        SandboxInfo as SandboxInfo,
    )
    from tupper.sdk._shared.types import (
        SandboxInfoLifecycle as SandboxInfoLifecycle,
    )
    from tupper.sdk._shared.types import (
        SandboxLifecycle as SandboxLifecycle,
    )
    from tupper.sdk._shared.types import (
        SandboxListOrder as SandboxListOrder,
    )
    from tupper.sdk._shared.types import (
        SandboxMetrics as SandboxMetrics,
    )
    from tupper.sdk._shared.types import (
        SandboxNetworkOpts as SandboxNetworkOpts,
    )
    from tupper.sdk._shared.types import SandboxNetworkSelector as SandboxNetworkSelector
    from tupper.sdk._shared.types import (
        SandboxNetworkSelectorContext as SandboxNetworkSelectorContext,
    )
    from tupper.sdk._shared.types import SandboxNetworkUpdate as SandboxNetworkUpdate
    from tupper.sdk._shared.types import (
        SandboxOnResume as SandboxOnResume,
    )
    from tupper.sdk._shared.types import (
        SandboxQuery as SandboxQuery,
    )
    from tupper.sdk._shared.types import (
        SandboxState as SandboxState,
    )
    from tupper.sdk._shared.types import (
        SnapshotInfo as SnapshotInfo,
    )
    from tupper.sdk._shared.types import (
        SnapshotMode as SnapshotMode,
    )
    from tupper.sdk._shared.types import (
        Stderr as Stderr,
    )
    from tupper.sdk._shared.types import (
        Stdout as Stdout,
    )
    from tupper.sdk._shared.types import (
        Username as Username,
    )
    from tupper.sdk._shared.types import (
        WriteData as WriteData,
    )
    from tupper.sdk._shared.types import (
        WriteEntry as WriteEntry,
    )
    from tupper.sdk._shared.types import (
        WriteInfo as WriteInfo,
    )
    from tupper.sdk._shared.volume import VolumeAndToken as VolumeAndToken
    from tupper.sdk._shared.volume import VolumeApiParams as VolumeApiParams
    from tupper.sdk._shared.volume import VolumeEntryStat as VolumeEntryStat
    from tupper.sdk._shared.volume import VolumeFileType as VolumeFileType
    from tupper.sdk._shared.volume import VolumeInfo as VolumeInfo
    from tupper.sdk._sync.copies import SnapshotPaginator as SnapshotPaginator
    from tupper.sdk._sync.events import SandboxEvents as SandboxEvents
    from tupper.sdk._sync.files import FileStreamReader as FileStreamReader
    from tupper.sdk._sync.git import Git as Git
    from tupper.sdk._sync.paginator import SandboxPaginator as SandboxPaginator
    from tupper.sdk._sync.sandbox import Sandbox as Sandbox
    from tupper.sdk._sync.secret import Secret as Secret
    from tupper.sdk._sync.secret import SecretPaginator as SecretPaginator
    from tupper.sdk._sync.template import Template as Template
    from tupper.sdk._sync.volume import Volume as Volume

__version__ = "0.1.0"

__all__ = [
    "ALL_TRAFFIC",
    "ApiParams",
    "AsyncCommandHandle",
    "AsyncCommandInputHandle",
    "AsyncFileStreamReader",
    "AsyncGit",
    "AsyncSandbox",
    "AsyncSandboxEvents",
    "AsyncSandboxPaginator",
    "AsyncSecret",
    "AsyncSecretPaginator",
    "AsyncSnapshotPaginator",
    "AsyncTemplate",
    "AsyncVolume",
    "AsyncWatchHandle",
    "AsyncWriteData",
    "AsyncWriteEntry",
    "AuthenticationException",
    "BuildException",
    "BuildInfo",
    "BuildStatusReason",
    "CommandExitException",
    "CommandHandle",
    "CommandResult",
    "ConflictException",
    "CopyItem",
    "EntryInfo",
    "FileNotFoundException",
    "FileStreamReader",
    "FileType",
    "FileUploadException",
    "FilesystemEvent",
    "FilesystemEventType",
    "Git",
    "GitAuthException",
    "GitBranches",
    "GitFileStatus",
    "GitResetMode",
    "GitStatus",
    "GitUpstreamException",
    "GuestUnresponsiveException",
    "InvalidArgumentException",
    "Isolation",
    "LogEntry",
    "LogEntryEnd",
    "LogEntryLevel",
    "LogEntryStart",
    "Mount",
    "NotEnoughSpaceException",
    "NotFoundException",
    "OutputHandler",
    "ProcessInfo",
    "ProtocolException",
    "ProxyTypes",
    "PtyOutput",
    "PtySize",
    "RateLimitException",
    "ReadyCmd",
    "Sandbox",
    "SandboxEvent",
    "SandboxEventType",
    "SandboxEvents",
    "SandboxException",
    "SandboxInfo",
    "SandboxInfoLifecycle",
    "SandboxLifecycle",
    "SandboxListOrder",
    "SandboxMetrics",
    "SandboxNetworkOpts",
    "SandboxNetworkSelector",
    "SandboxNetworkSelectorContext",
    "SandboxNetworkUpdate",
    "SandboxNotFoundException",
    "SandboxNotRunningException",
    "SandboxOnResume",
    "SandboxPaginator",
    "SandboxQuery",
    "SandboxState",
    "SandboxUnreachableException",
    "Secret",
    "SecretException",
    "SecretInfo",
    "SecretNotFoundException",
    "SecretPaginator",
    "ServiceBusyException",
    "Signature",
    "SnapshotInfo",
    "SnapshotMode",
    "SnapshotPaginator",
    "Stderr",
    "Stdout",
    "Template",
    "TemplateBase",
    "TemplateBuildStatus",
    "TemplateBuildStatusResponse",
    "TemplateClass",
    "TemplateException",
    "TemplateTag",
    "TemplateTagInfo",
    "TimeoutException",
    "TupperError",
    "UnavailableException",
    "UnsupportedException",
    "Username",
    "Volume",
    "VolumeAndToken",
    "VolumeApiParams",
    "VolumeEntryStat",
    "VolumeException",
    "VolumeFileType",
    "VolumeInfo",
    "VolumeNotFoundException",
    "VolumePathNotFoundException",
    "WatchHandle",
    "WriteData",
    "WriteEntry",
    "WriteInfo",
    "__version__",
    "default_build_logger",
    "get_signature",
    "wait_for_file",
    "wait_for_port",
    "wait_for_process",
    "wait_for_timeout",
    "wait_for_url",
]

_HOMES = {
    "ALL_TRAFFIC": "tupper.sdk._shared.types",
    "ApiParams": "tupper.sdk._shared.types",
    "AsyncCommandHandle": "tupper.sdk._handles_async",
    "AsyncCommandInputHandle": "tupper.sdk._faces_async",
    "AsyncFileStreamReader": "tupper.sdk._async.files",
    "AsyncGit": "tupper.sdk._async.git",
    "AsyncSandbox": "tupper.sdk._async.sandbox",
    "AsyncSandboxEvents": "tupper.sdk._async.events",
    "AsyncSandboxPaginator": "tupper.sdk._async.paginator",
    "AsyncSecret": "tupper.sdk._async.secret",
    "AsyncSecretPaginator": "tupper.sdk._async.secret",
    "AsyncSnapshotPaginator": "tupper.sdk._async.copies",
    "AsyncTemplate": "tupper.sdk._async.template",
    "AsyncVolume": "tupper.sdk._async.volume",
    "AsyncWatchHandle": "tupper.sdk._handles_async",
    "AsyncWriteData": "tupper.sdk._shared.types",
    "AsyncWriteEntry": "tupper.sdk._shared.types",
    "AuthenticationException": "tupper.sdk._shared.errors",
    "BuildException": "tupper.sdk._shared.errors",
    "BuildInfo": "tupper.sdk._shared.template",
    "BuildStatusReason": "tupper.sdk._shared.template",
    "CommandExitException": "tupper.sdk._shared.errors",
    "CommandHandle": "tupper.sdk._handles_sync",
    "CommandResult": "tupper.sdk._shared.types",
    "ConflictException": "tupper.sdk._shared.errors",
    "CopyItem": "tupper.sdk._shared.template",
    "EntryInfo": "tupper.sdk._shared.types",
    "FileNotFoundException": "tupper.sdk._shared.errors",
    "FileStreamReader": "tupper.sdk._sync.files",
    "FileType": "tupper.sdk._shared.types",
    "FileUploadException": "tupper.sdk._shared.errors",
    "FilesystemEvent": "tupper.sdk._shared.types",
    "FilesystemEventType": "tupper.sdk._shared.types",
    "Git": "tupper.sdk._sync.git",
    "GitAuthException": "tupper.sdk._shared.errors",
    "GitBranches": "tupper.sdk._shared.git",
    "GitFileStatus": "tupper.sdk._shared.git",
    "GitResetMode": "tupper.sdk._shared.git",
    "GitStatus": "tupper.sdk._shared.git",
    "GitUpstreamException": "tupper.sdk._shared.errors",
    "GuestUnresponsiveException": "tupper.sdk._shared.errors",
    "InvalidArgumentException": "tupper.sdk._shared.errors",
    "Isolation": "tupper.core.backend",
    "LogEntry": "tupper.sdk._shared.template",
    "LogEntryEnd": "tupper.sdk._shared.template",
    "LogEntryLevel": "tupper.sdk._shared.template",
    "LogEntryStart": "tupper.sdk._shared.template",
    "Mount": "tupper.sdk._shared.types",
    "NotEnoughSpaceException": "tupper.sdk._shared.errors",
    "NotFoundException": "tupper.sdk._shared.errors",
    "OutputHandler": "tupper.sdk._shared.types",
    "ProcessInfo": "tupper.sdk._shared.types",
    "ProtocolException": "tupper.sdk._shared.errors",
    "ProxyTypes": "tupper.sdk._shared.types",
    "PtyOutput": "tupper.sdk._shared.types",
    "PtySize": "tupper.sdk._shared.types",
    "RateLimitException": "tupper.sdk._shared.errors",
    "ReadyCmd": "tupper.sdk._shared.ready",
    "Sandbox": "tupper.sdk._sync.sandbox",
    "SandboxEvent": "tupper.sdk._shared.events",
    "SandboxEventType": "tupper.sdk._shared.events",
    "SandboxEvents": "tupper.sdk._sync.events",
    "SandboxException": "tupper.sdk._shared.errors",
    "SandboxInfo": "tupper.sdk._shared.types",
    "SandboxInfoLifecycle": "tupper.sdk._shared.types",
    "SandboxLifecycle": "tupper.sdk._shared.types",
    "SandboxListOrder": "tupper.sdk._shared.types",
    "SandboxMetrics": "tupper.sdk._shared.types",
    "SandboxNetworkOpts": "tupper.sdk._shared.types",
    "SandboxNetworkSelector": "tupper.sdk._shared.types",
    "SandboxNetworkSelectorContext": "tupper.sdk._shared.types",
    "SandboxNetworkUpdate": "tupper.sdk._shared.types",
    "SandboxNotFoundException": "tupper.sdk._shared.errors",
    "SandboxNotRunningException": "tupper.sdk._shared.errors",
    "SandboxOnResume": "tupper.sdk._shared.types",
    "SandboxPaginator": "tupper.sdk._sync.paginator",
    "SandboxQuery": "tupper.sdk._shared.types",
    "SandboxState": "tupper.sdk._shared.types",
    "SandboxUnreachableException": "tupper.sdk._shared.errors",
    "Secret": "tupper.sdk._sync.secret",
    "SecretException": "tupper.sdk._shared.errors",
    "SecretInfo": "tupper.sdk._shared.secret",
    "SecretNotFoundException": "tupper.sdk._shared.errors",
    "SecretPaginator": "tupper.sdk._sync.secret",
    "ServiceBusyException": "tupper.sdk._shared.errors",
    "Signature": "tupper.sdk._shared.signature",
    "SnapshotInfo": "tupper.sdk._shared.types",
    "SnapshotMode": "tupper.sdk._shared.types",
    "SnapshotPaginator": "tupper.sdk._sync.copies",
    "Stderr": "tupper.sdk._shared.types",
    "Stdout": "tupper.sdk._shared.types",
    "Template": "tupper.sdk._sync.template",
    "TemplateBase": "tupper.sdk._shared.builder",
    "TemplateBuildStatus": "tupper.sdk._shared.template",
    "TemplateBuildStatusResponse": "tupper.sdk._shared.template",
    "TemplateClass": "tupper.sdk._shared.builder",
    "TemplateException": "tupper.sdk._shared.errors",
    "TemplateTag": "tupper.sdk._shared.template",
    "TemplateTagInfo": "tupper.sdk._shared.template",
    "TimeoutException": "tupper.sdk._shared.errors",
    "TupperError": "tupper.core.errors",
    "UnavailableException": "tupper.sdk._shared.errors",
    "UnsupportedException": "tupper.sdk._shared.errors",
    "Username": "tupper.sdk._shared.types",
    "Volume": "tupper.sdk._sync.volume",
    "VolumeAndToken": "tupper.sdk._shared.volume",
    "VolumeApiParams": "tupper.sdk._shared.volume",
    "VolumeEntryStat": "tupper.sdk._shared.volume",
    "VolumeException": "tupper.sdk._shared.errors",
    "VolumeFileType": "tupper.sdk._shared.volume",
    "VolumeInfo": "tupper.sdk._shared.volume",
    "VolumeNotFoundException": "tupper.sdk._shared.errors",
    "VolumePathNotFoundException": "tupper.sdk._shared.errors",
    "WatchHandle": "tupper.sdk._handles_sync",
    "WriteData": "tupper.sdk._shared.types",
    "WriteEntry": "tupper.sdk._shared.types",
    "WriteInfo": "tupper.sdk._shared.types",
    "default_build_logger": "tupper.sdk._shared.build_logger",
    "get_signature": "tupper.sdk._shared.signature",
    "wait_for_file": "tupper.sdk._shared.ready",
    "wait_for_port": "tupper.sdk._shared.ready",
    "wait_for_process": "tupper.sdk._shared.ready",
    "wait_for_timeout": "tupper.sdk._shared.ready",
    "wait_for_url": "tupper.sdk._shared.ready",
}


def __getattr__(name: str) -> object:
    """Import a public name when it is asked for. Source: PEP 562."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'tupper' has no attribute {name!r}")
    value: object = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names."""
    return __all__
