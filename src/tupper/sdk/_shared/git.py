"""What ``sandbox.git`` gives back, and the command lines and texts behind it. No I/O.

Source: the public types of the ``e2b`` package 2.63.0; git-status(1), "Short Format" and
"Pathname Format Notes and -z"; gitcredentials(7).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple
from urllib.parse import quote, urlsplit, urlunsplit

from tupper.sdk._shared.errors import (
    CommandExitException,
    GitAuthException,
    GitUpstreamException,
    InvalidArgumentException,
)

GitResetMode = Literal["soft", "mixed", "hard", "merge", "keep"]
SCOPES = ("global", "local", "system")

# Git must fail instead of asking, and say what failed in the words that are looked for below.
_ENVIRONMENT = {"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
_HELPER = (
    "!f() { test \"$1\" = get && printf 'username=%s\\npassword=%s\\n' "
    '"$TUPPER_GIT_USERNAME" "$TUPPER_GIT_PASSWORD"; }; f'
)
_AUTH = (
    "authentication failed",
    "could not read username",
    "could not read password",
    "terminal prompts disabled",
    "invalid username or password",
    "invalid username or token",
    "access denied",
    "permission denied (publickey",
    "the requested url returned error: 401",
    "the requested url returned error: 403",
)
_UPSTREAM = (
    "has no upstream branch",
    "no upstream configured",
    "no tracking information",
    "no such ref was fetched",
)

# The login comes by the environment, so that it stands in no process's arguments.
APPROVE = (
    "printf 'protocol=%s\\nhost=%s\\nusername=%s\\npassword=%s\\n\\n' "
    '"$TUPPER_GIT_PROTOCOL" "$TUPPER_GIT_HOST" "$TUPPER_GIT_USERNAME" "$TUPPER_GIT_PASSWORD" '
    "| git credential approve"
)


class RunOptions(NamedTuple):
    """How a git command is run; see ``commands.run``."""

    envs: Mapping[str, str] | None
    user: str | None
    cwd: str | None
    timeout: float | None
    request_timeout: float | None

    def environment(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        """Of the command: the caller's wins over ours."""
        return {**_ENVIRONMENT, **(extra or {}), **(self.envs or {})}


@dataclass
class GitFileStatus:
    """A file that differs.

    Args:
        name: its path from the top of the repository.
        status: such as ``modified``, ``added``, ``deleted``, ``renamed``, ``untracked``,
            ``conflict``.
        index_status: the letter of the index, as ``git status --porcelain`` prints it.
        working_tree_status: the letter of the working tree.
        staged: whether the index differs from the last commit.
        renamed_from: its path before.
    """

    name: str
    status: str
    index_status: str
    working_tree_status: str
    staged: bool
    renamed_from: str | None = None


@dataclass
class GitStatus:
    """The state of a repository.

    Args:
        current_branch: None when HEAD is detached.
        upstream: such as ``origin/main``.
        ahead: commits that the upstream does not have.
        behind: commits that only the upstream has.
        detached: whether HEAD is no branch.
        file_status: the files that differ.
    """

    current_branch: str | None = None
    upstream: str | None = None
    ahead: int = 0
    behind: int = 0
    detached: bool = False
    file_status: list[GitFileStatus] = field(default_factory=list[GitFileStatus])

    @property
    def total_count(self) -> int:
        """How many files differ."""
        return len(self.file_status)

    @property
    def is_clean(self) -> bool:
        """Whether none differs."""
        return not self.file_status

    @property
    def has_changes(self) -> bool:
        """Whether any differs."""
        return bool(self.file_status)

    @property
    def staged_count(self) -> int:
        """How many have something for the next commit."""
        return sum(item.staged for item in self.file_status)

    @property
    def unstaged_count(self) -> int:
        """How many have nothing for the next commit."""
        return self.total_count - self.staged_count

    @property
    def untracked_count(self) -> int:
        """How many are not known to git."""
        return self._count("untracked")

    @property
    def conflict_count(self) -> int:
        """How many are in conflict."""
        return self._count("conflict")

    @property
    def has_staged(self) -> bool:
        """Whether there is anything for the next commit."""
        return self.staged_count > 0

    @property
    def has_untracked(self) -> bool:
        """Whether there is anything not known to git."""
        return self.untracked_count > 0

    @property
    def has_conflicts(self) -> bool:
        """Whether anything is in conflict."""
        return self.conflict_count > 0

    def _count(self, status: str) -> int:
        return sum(item.status == status for item in self.file_status)


@dataclass
class GitBranches:
    """The branches of a repository.

    Args:
        branches: their names.
        current_branch: None when HEAD is detached.
    """

    branches: list[str] = field(default_factory=list[str])
    current_branch: str | None = None


STATUS = ("status", "--porcelain=v1", "--branch", "-z")
BRANCHES = ("branch", "--format=%(HEAD) %(refname)")

_CONFLICTS = frozenset({"DD", "AU", "UD", "UA", "DU", "AA", "UU"})
# The first letter that either column shows decides, in this order.
_NAMES = {
    "R": "renamed",
    "C": "copied",
    "D": "deleted",
    "A": "added",
    "M": "modified",
    "T": "typechange",
}


def parse_status(text: str) -> GitStatus:
    """The output of ``git`` with :data:`STATUS`."""
    status = GitStatus()
    fields = iter(text.split("\0"))
    for item in fields:
        if item.startswith("## "):
            _parse_head(status, item[3:])
        elif len(item) > 3:
            codes = item[:2]
            before = next(fields, None) if codes[0] in "RC" or codes[1] in "RC" else None
            status.file_status.append(_file(codes, item[3:], before))
    return status


def _file(codes: str, name: str, before: str | None) -> GitFileStatus:
    staged = codes[0] not in " ?!"
    return GitFileStatus(name, _status(codes), codes[0], codes[1], staged, before)


def _status(codes: str) -> str:
    if codes in _CONFLICTS or "U" in codes:
        return "conflict"
    if codes == "??":
        return "untracked"
    return next((name for letter, name in _NAMES.items() if letter in codes), "unknown")


_COUNTS = re.compile(r" \[(?:ahead (?P<ahead>\d+))?(?:, )?(?:behind (?P<behind>\d+))?(?:gone)?\]$")


def _parse_head(status: GitStatus, text: str) -> None:
    if text == "HEAD (no branch)":
        status.detached = True
        return
    if counts := _COUNTS.search(text):
        status.ahead = int(counts["ahead"] or 0)
        status.behind = int(counts["behind"] or 0)
        text = text[: counts.start()]
    for prefix in ("No commits yet on ", "Initial commit on "):
        text = text.removeprefix(prefix)
    branch, _, upstream = text.partition("...")
    status.current_branch = branch
    status.upstream = upstream or None


def parse_branches(text: str) -> GitBranches:
    """The output of ``git`` with :data:`BRANCHES`."""
    found = GitBranches()
    for line in text.splitlines():
        mark, name = line[:1], line[2:]
        if not name.startswith("refs/heads/"):
            continue  # "(HEAD detached at …)"
        name = name.removeprefix("refs/heads/")
        found.branches.append(name)
        if mark == "*":
            found.current_branch = name
    return found


def render_git(path: str | None, arguments: Sequence[str]) -> str:
    """A command line.

    Args:
        path: of the repository; None outside of one.
        arguments: after ``git``.
    """
    where = () if path is None else ("-C", path)
    return shlex.join(["git", *where, *arguments])


def check_scope(scope: str, path: str | None) -> str | None:
    """The repository that a scope of the configuration needs; None if it needs none.

    Errors:
        InvalidArgumentException: there is no such scope, or the local one without a path.
    """
    if scope not in SCOPES:
        raise InvalidArgumentException(f"scope={scope!r} is none of {', '.join(SCOPES)}")
    if scope == "local" and not path:
        raise InvalidArgumentException("the local scope needs the path of a repository")
    return path if scope == "local" else None


class Login(NamedTuple):
    """A login for one command, or none. It stands neither in the arguments nor in a file."""

    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = {}


def check_login(username: str | None, password: str | None) -> Login:
    """What makes git use a login.

    Errors:
        InvalidArgumentException: a password without a username.
    """
    if not password:
        return Login()  # git knows the username's own ways
    if not username:
        raise InvalidArgumentException("a password needs a username")
    for text in (username, password):
        if "\n" in text or "\0" in text:
            raise InvalidArgumentException("a username or password has a line break in it")
    return Login(
        ("-c", "credential.helper=", "-c", f"credential.helper={_HELPER}"),
        {"TUPPER_GIT_USERNAME": username, "TUPPER_GIT_PASSWORD": password},
    )


def url_with_login(url: str, username: str | None, password: str | None) -> str:
    """A URL with a login in it, for who wants it kept in the repository.

    Errors:
        InvalidArgumentException: it is no HTTP.
    """
    if not username or not password:
        return url
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https"):
        raise InvalidArgumentException("a username and password are for http and https only")
    host = parts.netloc.rpartition("@")[2]
    login = f"{quote(username, safe='')}:{quote(password, safe='')}"
    return urlunsplit((parts.scheme, f"{login}@{host}", parts.path, parts.query, parts.fragment))


def restore_flags(staged: bool | None, worktree: bool | None) -> list[str]:
    """Which of the two ``git restore`` restores; the working tree if nothing is said.

    Errors:
        InvalidArgumentException: neither.
    """
    if staged is None and worktree is None:
        return ["--worktree"]
    flags = ["--staged"] if staged else []
    if worktree or (worktree is None and not staged):
        flags.append("--worktree")
    if not flags:
        raise InvalidArgumentException("restore: neither staged nor worktree")
    return flags


def explain(error: CommandExitException[str], action: str) -> Exception:
    """The exception for a git command that failed: a special one where E2B has one."""
    said = f"{error.stderr or ''}\n{error.stdout or ''}".lower()
    last = (error.stderr or "").strip()
    if any(words in said for words in _AUTH):
        return GitAuthException(
            f"git {action}: authentication failed, the remote wants another login: {last}"
        )
    if any(words in said for words in _UPSTREAM):
        return GitUpstreamException(
            f"git {action}: no upstream branch is configured; name remote and branch: {last}"
        )
    return error
