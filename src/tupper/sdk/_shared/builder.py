"""Writing down what a template shall be: ``Template().from_image(…).run_cmd(…)``. No I/O.

:class:`TemplateBase` says what it starts from, :class:`TemplateBuilder` the steps,
:class:`TemplateFinal` that nothing more can follow. All three share one :class:`Draft`. Each step
remembers the line of the caller's that asked for it, so that a failed build points there.

Source: the public methods of the ``e2b`` package 2.63.0; what they send is in the wire notes.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from tupper.sdk._shared.context import BuildContext, check_source
from tupper.sdk._shared.errors import (
    BuildException,
    InvalidArgumentException,
    TemplateException,
)
from tupper.sdk._shared.ready import ReadyCmd, wait_for_file
from tupper.sdk._shared.template import CopyItem

BASE_IMAGE = "e2bdev/base"
PathLike = str | Path
_OURS = str(Path(__file__).parents[2])


@dataclass
class Instruction:
    """One step.

    Args:
        kind: RUN, COPY, ENV, WORKDIR or USER.
        args: of the step.
        force: whether it shall run again.
        trace: where the caller asked for it.
        force_upload, follow, packed: of a COPY.
    """

    kind: str
    args: list[str]
    force: bool
    trace: TracebackType | None
    force_upload: bool = False
    follow: bool = False
    packed: bool = True


@dataclass
class Draft:
    """What was written down so far.

    Args:
        context: where COPY takes from.
        image, template: what it starts from; exactly one.
        registry: credentials for the image.
        instructions: the steps.
        start, ready: commands of the sandboxes.
        force: run all again.
        force_next: run all from now on again.
        base_trace, last_trace: where the caller named the base and the last thing.
    """

    context: BuildContext
    image: str = BASE_IMAGE
    template: str = ""
    registry: dict[str, str] | None = None
    instructions: list[Instruction] = field(default_factory=list[Instruction])
    start: str = ""
    ready: str = ""
    force: bool = False
    force_next: bool = False
    base_trace: TracebackType | None = None
    last_trace: TracebackType | None = None

    def add(self, kind: str, args: list[str]) -> None:
        """One more step."""
        self.last_trace = caller()
        self.instructions.append(Instruction(kind, args, self.force_next, self.last_trace))

    def trace_of(self, step: str | None) -> TracebackType | None:
        """Where the caller asked for a step, by its name in the server's answer."""
        if step == "base":
            return self.base_trace
        if step == "finalize":
            return self.last_trace
        if step and step.isdigit() and 1 <= int(step) <= len(self.instructions):
            return self.instructions[int(step) - 1].trace
        return None

    def hash_of(self, step: Instruction) -> str:
        """The hash of a COPY's files. Reads them."""
        return self.context.hash(step.args[0], step.args[1], follow=step.follow)

    def render(self, hashes: Sequence[str]) -> dict[str, object]:
        """The body that starts the build; one hash for each step, empty where it has none."""
        steps: list[dict[str, object]] = []
        for step, files_hash in zip(self.instructions, hashes, strict=True):
            body: dict[str, object] = {"type": step.kind, "args": step.args, "force": step.force}
            if files_hash:
                body["filesHash"] = files_hash
            steps.append(body)
        out: dict[str, object] = {"steps": steps, "force": self.force}
        out["fromTemplate" if self.template else "fromImage"] = self.template or self.image
        more = {
            "fromImageRegistry": self.registry, "startCmd": self.start, "readyCmd": self.ready,
        }  # fmt: skip
        return out | {name: value for name, value in more.items() if value}


def caller() -> TracebackType | None:
    """Where the first code outside of this package called in."""
    frame = sys._getframe(1)  # noqa: SLF001 - inspect.currentframe() is the same, and may be None
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_OURS):
        frame = frame.f_back
    return TracebackType(None, frame, frame.f_lasti, frame.f_lineno)


class TemplateFinal:
    """A template whose commands were set: it can only be built."""

    def __init__(self, draft: Draft) -> None:
        self.draft = draft


class TemplateBuilder(TemplateFinal):
    """The steps of a template; each method returns the builder."""

    def run_cmd(self, command: str | Sequence[str], user: str | None = None) -> Self:
        """Run a command in a login shell; of several, each only if the one before succeeded."""
        text = command if isinstance(command, str) else " && ".join(command)
        self.draft.add("RUN", [text, user] if user else [text])
        return self

    def copy(
        self,
        src: PathLike | Sequence[PathLike],
        dest: PathLike,
        force_upload: Literal[True] | None = None,
        user: str | None = None,
        mode: int | None = None,
        resolve_symlinks: bool | None = None,
        gzip: bool | None = None,
    ) -> Self:
        """Copy files of the context.

        Args:
            src: paths or patterns below the context; a directory stands for what is in it.
            dest: where; with a slash at its end, or for a pattern, a directory.
            force_upload: upload although they were uploaded before.
            user: who owns them, ``user`` or ``user:group``; the current user if None.
            mode: permissions, such as 0o755; each file's own if None.
            resolve_symlinks: copy what links lead to.
            gzip: compress on the way; True if None.

        Errors:
            TemplateException: a path is absolute or leads out of the context.
        """
        for source in [src] if isinstance(src, str | Path) else src:
            try:
                check_source(str(source))
            except TemplateException as error:
                raise error.with_traceback(caller()) from None
            permissions = "" if mode is None else f"{mode:04o}"
            self.draft.add("COPY", [str(source), str(dest), user or "", permissions])
            step = self.draft.instructions[-1]
            step.force = bool(force_upload) or step.force
            step.force_upload = bool(force_upload)
            step.follow = bool(resolve_symlinks)
            step.packed = gzip is not False
        return self

    def copy_items(self, items: Sequence[CopyItem]) -> Self:
        """Copy several things, each with its own options."""
        for item in items:
            self.copy(
                item["src"],
                item["dest"],
                force_upload=item.get("forceUpload"),
                user=item.get("user"),
                mode=item.get("mode"),
                resolve_symlinks=item.get("resolveSymlinks"),
                gzip=item.get("gzip"),
            )
        return self

    def remove(
        self,
        path: PathLike | Sequence[PathLike],
        force: bool = False,
        recursive: bool = False,
        user: str | None = None,
    ) -> Self:
        """Remove files, or with ``recursive`` directories."""
        options = ["-r"] * recursive + ["-f"] * force
        return self._run(["rm", *options, *_quoted(path)], user)

    def rename(
        self, src: PathLike, dest: PathLike, force: bool = False, user: str | None = None
    ) -> Self:
        """Rename or move a file or directory."""
        return self._run(["mv", *["-f"] * force, *_quoted([src, dest])], user)

    def make_dir(
        self,
        path: PathLike | Sequence[PathLike],
        mode: int | None = None,
        user: str | None = None,
    ) -> Self:
        """Make directories and their parents."""
        options = [] if mode is None else ["-m", f"{mode:04o}"]
        return self._run(["mkdir", "-p", *options, *_quoted(path)], user)

    def make_symlink(
        self, src: PathLike, dest: PathLike, user: str | None = None, force: bool = False
    ) -> Self:
        """Make a link ``dest`` that leads to ``src``."""
        return self._run(["ln", "-s", *["-f"] * force, *_quoted([src, dest])], user)

    def set_workdir(self, workdir: PathLike) -> Self:
        """Set, and make, the directory of the commands that follow and of the sandboxes."""
        self.draft.add("WORKDIR", [str(workdir)])
        return self

    def set_user(self, user: str) -> Self:
        """Set, and make, the user of the commands that follow and of the sandboxes."""
        self.draft.add("USER", [user])
        return self

    def set_envs(self, envs: Mapping[str, str]) -> Self:
        """Set environment variables; ``$NAME`` stands for one that is set already."""
        if envs:
            self.draft.add("ENV", [text for pair in envs.items() for text in pair])
        return self

    def pip_install(self, packages: str | Sequence[str] | None = None, g: bool = True) -> Self:
        """Install Python packages, for all users or with ``g=False`` for the current one."""
        words = ["pip", "install", *([] if g else ["--user"]), *(_words(packages) or ["."])]
        return self._run(words, "root" if g else None)

    def npm_install(
        self,
        packages: str | Sequence[str] | None = None,
        g: bool | None = False,
        dev: bool | None = False,
    ) -> Self:
        """Install packages with npm; what ``package.json`` says if none is named."""
        options = [*(["-g"] if g else []), *(["--save-dev"] if dev else [])]
        return self._run(["npm", "install", *options, *_words(packages)], "root" if g else None)

    def bun_install(
        self,
        packages: str | Sequence[str] | None = None,
        g: bool | None = False,
        dev: bool | None = False,
    ) -> Self:
        """Install packages with bun; what ``package.json`` says if none is named."""
        options = [*(["-g"] if g else []), *(["--dev"] if dev else [])]
        return self._run(["bun", "install", *options, *_words(packages)], "root" if g else None)

    def apt_install(
        self,
        packages: str | Sequence[str],
        no_install_recommends: bool = False,
        fix_missing: bool = False,
    ) -> Self:
        """Install packages of the distribution."""
        options = ["--no-install-recommends"] * no_install_recommends
        options += ["--fix-missing"] * fix_missing
        install = " ".join(["apt-get", "install", "-y", *options, *_words(packages)])
        quiet = "DEBIAN_FRONTEND=noninteractive DEBCONF_NOWARNINGS=yes"
        return self.run_cmd(["apt-get update", f"{quiet} {install}"], user="root")

    def git_clone(
        self,
        url: str,
        path: PathLike | None = None,
        branch: str | None = None,
        depth: int | None = None,
        user: str | None = None,
    ) -> Self:
        """Clone a repository."""
        words = ["git", "clone", shlex.quote(url)]
        if branch:
            words += ["--branch", shlex.quote(branch), "--single-branch"]
        if depth:
            words += ["--depth", str(depth)]
        return self._run([*words, *([] if path is None else _quoted(path))], user)

    def add_mcp_server(self, servers: str | Sequence[str]) -> Self:
        """Pull servers for an MCP gateway, in a template that has one."""
        self._only_in("mcp-gateway", "MCP servers can only be added to mcp-gateway template")
        return self._run(["mcp-gateway", "pull", *_words(servers)], "root")

    def beta_dev_container_prebuild(self, devcontainer_directory: PathLike) -> Self:
        """Build a dev container ahead, in a template that can."""
        self._only_in("devcontainer", "Devcontainers can only used in the devcontainer template")
        words = ["devcontainer", "build", "--workspace-folder", *_quoted(devcontainer_directory)]
        return self._run(words, "root")

    def beta_set_dev_container_start(self, devcontainer_directory: PathLike) -> TemplateFinal:
        """Start a dev container in each sandbox, in a template that can."""
        self._only_in("devcontainer", "Devcontainers can only used in the devcontainer template")
        (place,) = _quoted(devcontainer_directory)
        return self.set_start_cmd(
            f"sudo devcontainer up --workspace-folder {place} && sudo /prepare-exec.sh {place}"
            " | sudo tee /devcontainer.sh > /dev/null && sudo chmod +x /devcontainer.sh"
            " && sudo touch /devcontainer.up",
            wait_for_file("/devcontainer.up"),
        )

    def skip_cache(self) -> Self:
        """Run everything from here on again, whatever was kept."""
        self.draft.force_next = True
        return self

    def set_start_cmd(self, start_cmd: str, ready_cmd: str | ReadyCmd) -> TemplateFinal:
        """Set what each sandbox starts with, and what says that it is ready."""
        self.draft.start = start_cmd
        return self.set_ready_cmd(ready_cmd)

    def set_ready_cmd(self, ready_cmd: str | ReadyCmd) -> TemplateFinal:
        """Set what says that a sandbox is ready."""
        self.draft.ready = ready_cmd if isinstance(ready_cmd, str) else ready_cmd.get_cmd()
        self.draft.last_trace = caller()
        return TemplateFinal(self.draft)

    def _run(self, words: Sequence[str], user: str | None) -> Self:
        return self.run_cmd(" ".join(words), user)

    def _only_in(self, template: str, text: str) -> None:
        if self.draft.template != template:
            raise BuildException(text).with_traceback(caller())


def _words(packages: str | Sequence[str] | None) -> list[str]:
    return [packages] if isinstance(packages, str) else list(packages or ())


def _quoted(paths: PathLike | Sequence[PathLike]) -> list[str]:
    several = [paths] if isinstance(paths, str | Path) else paths
    return [shlex.quote(str(path)) for path in several]


TemplateClass = TemplateFinal | TemplateBuilder


class TemplateBase(TemplateFinal):
    """What a template starts from.

    Args:
        file_context_path: the directory that ``copy`` takes from; that of the calling file if None.
        file_ignore_patterns: what is left out, as in ``.dockerignore``.
    """

    def __init__(
        self,
        file_context_path: PathLike | None = None,
        file_ignore_patterns: Sequence[str] | None = None,
    ) -> None:
        place = file_context_path
        if place is None:
            trace = caller()
            name = trace.tb_frame.f_code.co_filename if trace is not None else ""
            place = Path(name).absolute().parent if name and not name.startswith("<") else "."
        super().__init__(Draft(BuildContext(Path(place), file_ignore_patterns or ())))

    def skip_cache(self) -> Self:
        """Run everything again, whatever was kept."""
        self.draft.force_next = True
        return self

    def from_image(
        self, image: str, username: str | None = None, password: str | None = None
    ) -> TemplateBuilder:
        """Start from an image; ``username`` and ``password`` are for its registry."""
        if username is not None or password is not None:
            if not username or not password:
                raise InvalidArgumentException(
                    "Both username and password are required when providing registry credentials"
                ).with_traceback(caller())
            self.draft.registry = {
                "type": "registry", "username": username, "password": password,
            }  # fmt: skip
        return self._from(image=image)

    def from_template(self, template: str) -> TemplateBuilder:
        """Start from a template, ``name`` or ``name:tag``."""
        return self._from(template=template)

    def _from(self, *, image: str = "", template: str = "") -> TemplateBuilder:
        draft = self.draft
        draft.image, draft.template = image, template
        draft.force = draft.force or draft.force_next
        draft.base_trace = draft.last_trace = caller()
        return TemplateBuilder(draft)

    def from_base_image(self) -> TemplateBuilder:
        """Start from ``base``."""
        return self.from_image(BASE_IMAGE)

    def from_debian_image(self, variant: str = "stable") -> TemplateBuilder:
        """Start from Debian."""
        return self.from_image(f"debian:{variant}")

    def from_ubuntu_image(self, variant: str = "latest") -> TemplateBuilder:
        """Start from Ubuntu."""
        return self.from_image(f"ubuntu:{variant}")

    def from_fedora_image(self, variant: str = "44") -> TemplateBuilder:
        """Start from Fedora."""
        return self.from_image(f"fedora:{variant}")

    def from_alpine_image(self, variant: str = "3.24") -> TemplateBuilder:
        """Start from Alpine."""
        return self.from_image(f"alpine:{variant}")

    def from_arch_image(self, variant: str = "latest") -> TemplateBuilder:
        """Start from Arch Linux."""
        return self.from_image(f"archlinux:{variant}")

    def from_python_image(self, version: str = "3") -> TemplateBuilder:
        """Start from the image of Python."""
        return self.from_image(f"python:{version}")

    def from_node_image(self, variant: str = "lts") -> TemplateBuilder:
        """Start from the image of Node.js."""
        return self.from_image(f"node:{variant}")

    def from_bun_image(self, variant: str = "latest") -> TemplateBuilder:
        """Start from the image of Bun."""
        return self.from_image(f"oven/bun:{variant}")

    def from_aws_registry(
        self, image: str, access_key_id: str, secret_access_key: str, region: str
    ) -> TemplateBuilder:
        """Start from an image at AWS."""
        self.draft.registry = {
            "type": "aws",
            "awsAccessKeyId": access_key_id,
            "awsSecretAccessKey": secret_access_key,
            "awsRegion": region,
        }
        return self._from(image=image)

    def from_gcp_registry(
        self, image: str, service_account_json: str | Mapping[str, object]
    ) -> TemplateBuilder:
        """Start from an image at Google; the account is a mapping or the path of a file."""
        account = service_account_json
        if isinstance(account, str):
            text = self.draft.context.read(account)
        else:
            text = json.dumps(dict(account))
        self.draft.registry = {"type": "gcp", "serviceAccountJson": text}
        return self._from(image=image)

    def from_dockerfile(self, dockerfile_content_or_path: str) -> TemplateBuilder:
        """Start from what a Dockerfile says, its text or its path; one stage only.

        Errors:
            TemplateException: it is wrong, or needs what steps cannot do.
        """
        # Here because it writes steps by the builder itself.
        from tupper.sdk._shared.dockerfile import write_steps  # noqa: PLC0415

        builder = TemplateBuilder(self.draft)
        self._from(image=write_steps(dockerfile_content_or_path, builder))
        return builder

    @staticmethod
    def to_json(template: TemplateClass) -> str:
        """What would be sent, as JSON."""
        draft = template.draft
        hashes = [draft.hash_of(s) if s.kind == "COPY" else "" for s in draft.instructions]
        return json.dumps(draft.render(hashes), indent=2)

    @staticmethod
    def to_dockerfile(template: TemplateClass) -> str:
        """The template as a Dockerfile.

        Errors:
            ValueError: it starts from a template.
        """
        draft = template.draft
        if draft.template:
            raise ValueError(
                "Cannot convert template built from another template to Dockerfile. "
                "Templates based on other templates can only be built using the E2B API."
            )
        lines = [f"FROM {draft.image}"]
        for step in draft.instructions:
            args = step.args
            if step.kind == "ENV":
                args = [f"{k}={v}" for k, v in zip(args[::2], args[1::2], strict=True)]
            elif step.kind in ("RUN", "COPY"):
                args = args[: 1 if step.kind == "RUN" else 2]
            lines.append(f"{step.kind} {' '.join(args)}")
        if draft.start:
            lines.append(f"ENTRYPOINT {draft.start}")
        return "\n".join(lines) + "\n"
