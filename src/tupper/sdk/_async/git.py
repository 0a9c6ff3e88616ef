"""Git in a sandbox: commands of the ``git`` there, with their output understood."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from tupper.sdk._async.commands import CommandCalls
from tupper.sdk._shared import git
from tupper.sdk._shared.errors import CommandExitException, InvalidArgumentException
from tupper.sdk._shared.git import GitBranches, GitResetMode, GitStatus, RunOptions
from tupper.sdk._shared.types import CommandResult


class AsyncGit:
    """Runs git. ``sandbox.git``.

    Every method takes ``envs``, ``user``, ``cwd``, ``timeout`` and ``request_timeout`` as
    ``commands.run`` does; without a ``timeout`` there is none. Paths are the sandbox's.

    Errors:
        CommandExitException: git failed.
        GitAuthException: the remote wants a login, or refuses the one given.
        GitUpstreamException: a branch has no upstream, and none was named.

    Args:
        commands: of the sandbox.
    """

    def __init__(self, commands: CommandCalls) -> None:
        self._commands = commands

    async def _git(
        self,
        path: str | None,
        arguments: Sequence[str],
        options: RunOptions,
        extra: Mapping[str, str] | None = None,
    ) -> CommandResult[str]:
        return await self._run(git.render_git(path, arguments), arguments, options, extra)

    async def _run(
        self,
        line: str,
        arguments: Sequence[str],
        options: RunOptions,
        extra: Mapping[str, str] | None = None,
    ) -> CommandResult[str]:
        try:
            return await self._commands.run(
                line,
                envs=options.environment(extra),
                user=options.user,
                cwd=options.cwd,
                timeout=options.timeout,
                request_timeout=options.request_timeout,
            )
        except CommandExitException as stopped:  # pyright: ignore[reportUnknownVariableType]
            error = cast("CommandExitException[str]", stopped)
            action = next((word for word in arguments if word.isalpha()), "")
            raise git.explain(error, action) from error

    async def _ask(self, path: str | None, arguments: Sequence[str], options: RunOptions) -> str:
        """What git says; empty if it fails with 1 or 2, its way of saying that there is none."""
        try:
            return (await self._git(path, arguments, options)).stdout.rstrip("\n")
        except CommandExitException as stopped:  # pyright: ignore[reportUnknownVariableType]
            if cast("CommandExitException[str]", stopped).exit_code in (1, 2):
                return ""
            raise

    async def clone(
        self,
        url: str,
        path: str | None = None,
        branch: str | None = None,
        depth: int | None = None,
        username: str | None = None,
        password: str | None = None,
        envs: Mapping[str, str] | None = None,
        user: str | None = None,
        cwd: str | None = None,
        timeout: float | None = None,
        request_timeout: float | None = None,
        dangerously_store_credentials: bool = False,
    ) -> CommandResult[str]:
        """Copy a repository into the sandbox.

        Args:
            url: of the repository.
            path: where to; git's choice if not given.
            branch: to check out.
            depth: how many commits; all if not given.
            username: for HTTP; it is not kept.
            password: or a token; likewise.
            envs, user, cwd, timeout, request_timeout: see the class.
            dangerously_store_credentials: keep both in the repository's configuration, readable
                for everything in the sandbox.
        """
        login = git.check_login(username, password)
        if dangerously_store_credentials:
            url, login = git.url_with_login(url, username, password), git.Login()
        arguments = [*login.arguments, "clone"]
        if branch:
            arguments += ["--branch", branch, "--single-branch"]
        if depth:
            arguments += ["--depth", str(depth)]
        arguments += ["--", url, *([path] if path else [])]
        options = RunOptions(envs, user, cwd, timeout, request_timeout)
        return await self._git(None, arguments, options, login.environment)

    async def init(
        self,
        path: str,
        bare: bool = False,
        initial_branch: str | None = None,
        envs: Mapping[str, str] | None = None,
        user: str | None = None,
        cwd: str | None = None,
        timeout: float | None = None,
        request_timeout: float | None = None,
    ) -> CommandResult[str]:
        """Make a repository."""
        arguments = ["init", *(["--bare"] if bare else [])]
        if initial_branch:
            arguments += ["--initial-branch", initial_branch]
        options = RunOptions(envs, user, cwd, timeout, request_timeout)
        return await self._git(None, [*arguments, "--", path], options)

    async def remote_add(
        self,
        path: str,
        name: str,
        url: str,
        fetch: bool = False,
        overwrite: bool = False,
        envs: Mapping[str, str] | None = None,
        user: str | None = None,
        cwd: str | None = None,
        timeout: float | None = None,
        request_timeout: float | None = None,
    ) -> CommandResult[str]:
        """Add a remote.

        Args:
            path: of the repository.
            name: such as ``origin``.
            url: of the remote.
            fetch: fetch from it at once.
            overwrite: change its URL if there is one of this name.
            envs, user, cwd, timeout, request_timeout: see the class.
        """
        if not name or not url:
            raise InvalidArgumentException("a remote needs a name and a URL")
        options = RunOptions(envs, user, cwd, timeout, request_timeout)
        if overwrite and await self._ask(path, ["remote", "get-url", name], options):
            result = await self._git(path, ["remote", "set-url", name, url], options)
        else:
            result = await self._git(path, ["remote", "add", name, url], options)
        return await self._git(path, ["fetch", name], options) if fetch else result

    async def remote_get(
        self,
        path: str,
        name: str,
        envs: Mapping[str, str] | None = None,
        user: str | None = None,
        cwd: str | None = None,
        timeout: float | None = None,
        request_timeout: float | None = None,
    ) -> str | None:
        """The URL of a remote; None if there is none of this name."""
        if not name:
            raise InvalidArgumentException("a remote needs a name")
        options = RunOptions(envs, user, cwd, timeout, request_timeout)
        return await self._ask(path, ["remote", "get-url", name], options) or None

    async def status(
        self,
        path: str,
        envs: Mapping[str, str] | None = None,
        user: str | None = None,
        cwd: str | None = None,
        timeout: float | None = None,
        request_timeout: float | None = None,
    ) -> GitStatus:
        """What differs from the last commit, and from the upstream."""
        options = RunOptions(envs, user, cwd, timeout, request_timeout)
        return git.parse_status((await self._git(path, git.STATUS, options)).stdout)

    async def branches(
        self,
        path: str,
        envs: Mapping[str, str] | None = None,
        user: str | None = None,
        cwd: str | None = None,
        timeout: float | None = None,
        request_timeout: float | None = None,
    ) -> GitBranches:
        """The branches of a repository."""
        options = RunOptions(envs, user, cwd, timeout, request_timeout)
        return git.parse_branches((await self._git(path, git.BRANCHES, options)).stdout)

    async def create_branch(
        self,
        path: str,
        branch: str,
        envs: Mapping[str, str] | None = None,
        user: str | None = None,
        cwd: str | None = None,
        timeout: float | None = None,
        request_timeout: float | None = None,
    ) -> CommandResult[str]:
        """Make a branch and check it out."""
        options = RunOptions(envs, user, cwd, timeout, request_timeout)
        return await self._git(path, ["checkout", "-b", _named(branch)], options)

    async def checkout_branch(
        self,
        path: str,
        branch: str,
        envs: Mapping[str, str] | None = None,
        user: str | None = None,
        cwd: str | None = None,
        timeout: float | None = None,
        request_timeout: float | None = None,
    ) -> CommandResult[str]:
        """Check out a branch that exists."""
        options = RunOptions(envs, user, cwd, timeout, request_timeout)
        return await self._git(path, ["checkout", _named(branch), "--"], options)

    async def delete_branch(
        self,
        path: str,
        branch: str,
        force: bool = False,
        envs: Mapping[str, str] | None = None,
        user: str | None = None,
        cwd: str | None = None,
        timeout: float | None = None,
        request_timeout: float | None = None,
    ) -> CommandResult[str]:
        """Delete a branch; with ``force`` also one that is not merged."""
        options = RunOptions(envs, user, cwd, timeout, request_timeout)
        return await self._git(
            path, ["branch", "-D" if force else "-d", "--", _named(branch)], options
        )

    async def add(
        self,
        path: str,
        files: Sequence[str] | None = None,
        all: bool = True,
        envs: Mapping[str, str] | None = None,
        user: str | None = None,
        cwd: str | None = None,
        timeout: float | None = None,
        request_timeout: float | None = None,
    ) -> CommandResult[str]:
        """Put changes into the next commit.

        Args:
            path: of the repository.
            files: which; without, everything, or with ``all=False`` what is below ``path``.
            all: see ``files``.
            envs, user, cwd, timeout, request_timeout: see the class.
        """
        options = RunOptions(envs, user, cwd, timeout, request_timeout)
        what = ["--", *files] if files else ["-A"] if all else ["."]
        return await self._git(path, ["add", *what], options)

    async def commit(
        self,
        path: str,
        message: str,
        author_name: str | None = None,
        author_email: str | None = None,
        allow_empty: bool = False,
        envs: Mapping[str, str] | None = None,
        user: str | None = None,
        cwd: str | None = None,
        timeout: float | None = None,
        request_timeout: float | None = None,
    ) -> CommandResult[str]:
        """Make a commit; the author's name and email are for this one only."""
        arguments: list[str] = []
        if author_name:
            arguments += ["-c", f"user.name={author_name}"]
        if author_email:
            arguments += ["-c", f"user.email={author_email}"]
        arguments += ["commit", "-m", message, *(["--allow-empty"] if allow_empty else [])]
        options = RunOptions(envs, user, cwd, timeout, request_timeout)
        return await self._git(path, arguments, options)

    async def reset(
        self,
        path: str,
        mode: GitResetMode | None = None,
        target: str | None = None,
        paths: Sequence[str] | None = None,
        envs: Mapping[str, str] | None = None,
        user: str | None = None,
        cwd: str | None = None,
        timeout: float | None = None,
        request_timeout: float | None = None,
    ) -> CommandResult[str]:
        """Move HEAD to ``target``, or take ``paths`` out of the next commit."""
        if mode is not None and mode not in ("soft", "mixed", "hard", "merge", "keep"):
            raise InvalidArgumentException(f"mode={mode!r} is no mode of git reset")
        arguments = ["reset", *([f"--{mode}"] if mode else []), *([target] if target else [])]
        arguments += ["--", *paths] if paths else []
        options = RunOptions(envs, user, cwd, timeout, request_timeout)
        return await self._git(path, arguments, options)

    async def restore(
        self,
        path: str,
        paths: Sequence[str],
        staged: bool | None = None,
        worktree: bool | None = None,
        source: str | None = None,
        envs: Mapping[str, str] | None = None,
        user: str | None = None,
        cwd: str | None = None,
        timeout: float | None = None,
        request_timeout: float | None = None,
    ) -> CommandResult[str]:
        """Take changes back.

        Args:
            path: of the repository.
            paths: which files; ``["."]`` for all.
            staged: take them out of the next commit.
            worktree: restore the files themselves, which is done if nothing is said.
            source: a commit or branch to take them from.
            envs, user, cwd, timeout, request_timeout: see the class.
        """
        if not paths:
            raise InvalidArgumentException("restore: no paths given")
        arguments = ["restore", *git.restore_flags(staged, worktree)]
        if source:
            arguments.append(f"--source={source}")
        options = RunOptions(envs, user, cwd, timeout, request_timeout)
        return await self._git(path, [*arguments, "--", *paths], options)

    async def push(
        self,
        path: str,
        remote: str | None = None,
        branch: str | None = None,
        set_upstream: bool = True,
        username: str | None = None,
        password: str | None = None,
        envs: Mapping[str, str] | None = None,
        user: str | None = None,
        cwd: str | None = None,
        timeout: float | None = None,
        request_timeout: float | None = None,
    ) -> CommandResult[str]:
        """Send commits to a remote.

        Args:
            path: of the repository.
            remote: the upstream's if not given; with a branch, the only one there is.
            branch: the upstream, or with a remote the current one, if not given.
            set_upstream: remember where it went, if a remote or a branch is named.
            username: for HTTP; it is not kept.
            password: or a token; likewise.
            envs, user, cwd, timeout, request_timeout: see the class.

        Errors:
            GitUpstreamException: neither is given and the branch has no upstream.
        """
        login = git.check_login(username, password)
        options = RunOptions(envs, user, cwd, timeout, request_timeout)
        if branch and not remote:
            remote = await self._only_remote(path, options)
        if remote and not branch:
            branch = await self._ask(path, ["symbolic-ref", "--short", "-q", "HEAD"], options)
        arguments = [*login.arguments, "push"]
        if remote and branch:
            arguments += ["--set-upstream"] if set_upstream else []
            arguments += [remote, branch]
        elif remote:
            arguments.append(remote)
        return await self._git(path, arguments, options, login.environment)

    async def pull(
        self,
        path: str,
        remote: str | None = None,
        branch: str | None = None,
        username: str | None = None,
        password: str | None = None,
        envs: Mapping[str, str] | None = None,
        user: str | None = None,
        cwd: str | None = None,
        timeout: float | None = None,
        request_timeout: float | None = None,
    ) -> CommandResult[str]:
        """Get commits from a remote and merge them.

        Args:
            path: of the repository.
            remote: the upstream's if not given.
            branch: likewise.
            username: for HTTP; it is not kept.
            password: or a token; likewise.
            envs, user, cwd, timeout, request_timeout: see the class.

        Errors:
            GitUpstreamException: neither is given and the branch has no upstream.
        """
        login = git.check_login(username, password)
        options = RunOptions(envs, user, cwd, timeout, request_timeout)
        if branch and not remote:
            remote = await self._only_remote(path, options) or "origin"
        arguments = [*login.arguments, "pull"]
        arguments += [name for name in (remote, branch) if name]
        return await self._git(path, arguments, options, login.environment)

    async def _only_remote(self, path: str, options: RunOptions) -> str | None:
        names = (await self._git(path, ["remote"], options)).stdout.split()
        return names[0] if len(names) == 1 else None

    async def set_config(
        self,
        key: str,
        value: str,
        scope: str = "global",
        path: str | None = None,
        envs: Mapping[str, str] | None = None,
        user: str | None = None,
        cwd: str | None = None,
        timeout: float | None = None,
        request_timeout: float | None = None,
    ) -> CommandResult[str]:
        """Set a value of git's configuration; ``scope`` is ``global``, ``local`` or ``system``."""
        where = git.check_scope(scope, path)
        options = RunOptions(envs, user, cwd, timeout, request_timeout)
        return await self._git(where, ["config", f"--{scope}", _named(key), value], options)

    async def get_config(
        self,
        key: str,
        scope: str = "global",
        path: str | None = None,
        envs: Mapping[str, str] | None = None,
        user: str | None = None,
        cwd: str | None = None,
        timeout: float | None = None,
        request_timeout: float | None = None,
    ) -> str | None:
        """A value of git's configuration; None if it is not set in this scope."""
        where = git.check_scope(scope, path)
        options = RunOptions(envs, user, cwd, timeout, request_timeout)
        return (
            await self._ask(where, ["config", f"--{scope}", "--get", _named(key)], options) or None
        )

    async def configure_user(
        self,
        name: str,
        email: str,
        scope: str = "global",
        path: str | None = None,
        envs: Mapping[str, str] | None = None,
        user: str | None = None,
        cwd: str | None = None,
        timeout: float | None = None,
        request_timeout: float | None = None,
    ) -> CommandResult[str]:
        """Say who makes the commits."""
        if not name or not email:
            raise InvalidArgumentException("a user needs a name and an email")
        options = RunOptions(envs, user, cwd, timeout, request_timeout)
        await self.set_config("user.name", name, scope, path, *options)
        return await self.set_config("user.email", email, scope, path, *options)

    async def dangerously_authenticate(
        self,
        username: str,
        password: str,
        host: str = "github.com",
        protocol: str = "https",
        envs: Mapping[str, str] | None = None,
        user: str | None = None,
        cwd: str | None = None,
        timeout: float | None = None,
        request_timeout: float | None = None,
    ) -> CommandResult[str]:
        """Keep a login in the sandbox, in a file that everything there can read."""
        login = git.check_login(username, password)
        if not login.arguments:
            raise InvalidArgumentException("there is no username and password to store")
        options = RunOptions(envs, user, cwd, timeout, request_timeout)
        await self.set_config("credential.helper", "store", "global", None, *options)
        where = {"TUPPER_GIT_HOST": host, "TUPPER_GIT_PROTOCOL": protocol}
        return await self._run(
            git.APPROVE, ["credential", "approve"], options, {**login.environment, **where}
        )


def _named(text: str) -> str:
    """A name that git cannot take for an option."""
    if not text or text.startswith("-"):
        raise InvalidArgumentException(f"{text!r} is no name")
    return text
