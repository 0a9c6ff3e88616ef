"""Building a root filesystem from this machine's own Debian or Ubuntu mirror.

mmdebstrap does the work: packages are signed by the distribution, their scripts run in a chroot
as they would on any Debian machine. apt runs outside the chroot, so the machine's proxy and
certificate authorities apply; nothing of them stays in the result (see :data:`_NORMALISE`).

Downloaded packages are kept in the cache, one directory per template, exactly those that the last
build used.

As root the tree is written in place. For an ordinary user mmdebstrap maps ids otherwise than we
do, so it writes a tar archive, which is unpacked like a layer.

Source: mmdebstrap(1), apt.conf(5), dpkg(1) ``--path-exclude``; timings in docs/design/images.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
import shlex
import shutil
from pathlib import Path

from tupper.core.errors import ProgramFailed, ProgramNotFound, TemplateError
from tupper.core.paths import make_private
from tupper.core.process import minimal_env, run
from tupper.images.aptsources import AptSource, Distribution
from tupper.images.recipe import Recipe
from tupper.images.records import Progress, ProgressEvent

BUILDER = "debian 1"  # part of every template's key; raise it when the result changes
_TIMEOUT_S = 1800.0
_INHERITED = (
    "Acquire::http::Proxy", "Acquire::https::Proxy", "Acquire::https::CAInfo",
    "Acquire::https::CAPath", "Acquire::http::Timeout", "Acquire::Retries",
)  # fmt: skip
_WORK = ".tupper"
_STEP = re.compile(r"^(?:I: (?P<info>.+)|(?P<verb>Unpacking|Setting up) (?P<package>\S+) .*)$")
# How mmdebstrap does it is no news, and neither is how it ends.
_INTERNAL = re.compile(
    r"I: (?:running (?:--\S+-hook|special hook)|chroot architecture|finding correct)"
    r"|I: reading sources|.*received signal"
)
_ERROR = re.compile(r"^(?:E: .+|.*[Ee]rror: .+|dpkg: .+)$")

# What must not travel from this machine, or differ from one build to the next.
_NORMALISE = """
rm -rf "$1"/etc/apt/apt.conf.d/99mmdebstrap "$1"/etc/dpkg/dpkg.cfg.d/99mmdebstrap
rm -rf "$1"/etc/apt/auth.conf "$1"/etc/apt/auth.conf.d/*
rm -rf "$1"/var/lib/apt/lists/* "$1"/var/cache/apt/*.bin "$1"/var/cache/apt/archives/*.deb
rm -rf "$1"/var/log/*.log "$1"/var/log/apt "$1"/var/cache/debconf/*-old "$1"/tmp/* "$1"/run/*
rm -rf "$1"/etc/passwd- "$1"/etc/group- "$1"/etc/shadow- "$1"/etc/gshadow- "$1"/.tupper
rm -rf "$1"/var/lib/dpkg/*-old "$1"/var/cache/ldconfig/aux-cache "$1"/var/lib/dbus/machine-id
rm -f "$1"/etc/resolv.conf "$1"/etc/hostname "$1"/etc/hosts "$1"/etc/machine-id
mkdir -p "$1"/etc "$1"/tmp
chmod 1777 "$1"/tmp
: >"$1"/etc/resolv.conf
: >"$1"/etc/machine-id
echo tupper >"$1"/etc/hostname
{ echo '127.0.0.1 localhost tupper'; echo '::1 localhost ip6-localhost'; } >"$1"/etc/hosts
chmod 755 "$1"
"""


async def build_debian(
    recipe: Recipe,
    distribution: Distribution,
    stage: Path,
    *,
    cache_dir: Path,
    as_root: bool,
    progress: Progress,
) -> Path:
    """Build a recipe of kind ``debian``.

    Args:
        recipe: what to build.
        distribution: from where.
        stage: an empty directory on the store's disk.
        cache_dir: for downloaded packages.
        as_root: whether the tree can be written in place.
        progress: told each step.

    Returns:
        ``stage/rootfs``, a directory; or ``stage/root.tar``, an archive of it.

    Raises:
        TemplateError: naming the step that failed.
        ProgramNotFound: mmdebstrap is missing.
    """
    files = stage / "files.tar"
    packages = make_private(cache_dir / "packages" / recipe.name)
    script = _render_script(recipe, distribution.sources)
    await asyncio.to_thread(files.write_bytes, recipe.tar({f"{_WORK}/build.sh": script}))
    normalise = stage / "normalise.sh"
    await asyncio.to_thread(normalise.write_text, f"set -e\n{_NORMALISE}")
    fresh = stage / "packages"
    fresh.mkdir(mode=0o700)
    target = stage / ("rootfs" if as_root else "root.tar")
    argv = [
        *mmdebstrap_command(recipe, as_root=as_root, apt_options=await _inherited_options()),
        *_hooks(recipe, stage, packages, fresh),
        distribution.codename,
        str(target),
        "-",
    ]
    watcher = _Watcher(progress)
    sources = "".join(f"{source.render()}\n" for source in distribution.sources)
    try:
        await run(
            argv,
            timeout_s=_TIMEOUT_S,
            stdin=sources.encode(),
            # Other users than we are, in its user namespace, must be able to reach its directory.
            env=minimal_env(
                TMPDIR=str(stage) if as_root else "/var/tmp",  # noqa: S108 - it makes its own
                HOME="/",  # dpkg looks for its settings there, as that other user
                DEBIAN_FRONTEND="noninteractive",
            ),
            on_line=watcher.take,
        )
    except ProgramNotFound as error:
        raise ProgramNotFound(
            "mmdebstrap is not installed", hint="run: tupper setup (or: apt install mmdebstrap)"
        ) from error
    except ProgramFailed as error:
        raise TemplateError(
            f"template {recipe.name}: {watcher.explain()}",
            hint="is the package mirror reachable? try: apt-get update",
        ) from error
    await asyncio.to_thread(_keep_packages, fresh, packages)
    return target


def mmdebstrap_command(recipe: Recipe, *, as_root: bool, apt_options: list[str]) -> list[str]:
    """The command without hooks and places."""
    argv = ["mmdebstrap", "--verbose", f"--variant={recipe.variant}"]
    argv += ["--mode=root", "--format=directory"] if as_root else ["--mode=unshare", "--format=tar"]
    argv.append(f"--include={','.join(recipe.packages)}")
    options = ['Acquire::Languages "none"', 'APT::Install-Recommends "false"', *apt_options]
    argv += [f"--aptopt={option}" for option in options]
    # The tree is flushed to disk once, when it is stored.
    argv.append("--dpkgopt=force-unsafe-io")
    argv += [f"--dpkgopt=path-exclude={pattern}" for pattern in recipe.exclude]
    # Packages that were downloaded stay until they are copied into the cache. And mmdebstrap must
    # not clean apt up after our last hook, which empties /tmp: its apt.conf is there, and without
    # it apt-get would clean the host's own lists and cache. The hook has done it already.
    return [*argv, "--skip=essential/unlink,cleanup/apt"]


def _hooks(recipe: Recipe, stage: Path, packages: Path, fresh: Path) -> list[str]:
    archives = "/var/cache/apt/archives"
    inside = [*recipe.shell, f"/{_WORK}/build.sh"]
    normalise = (stage / "normalise.sh").read_text()
    # A tree into which packages are only extracted never comes to the later stages.
    last = "extract-hook" if recipe.variant == "extract" else "customize-hook"
    return [
        '--setup-hook=mkdir -p "$1"/var/cache/apt/archives/partial',
        f"--setup-hook=sync-in {shlex.quote(str(packages))} {archives}",
        f"--{last}=sync-out {archives} {shlex.quote(str(fresh))}",
        f"--{last}=tar-in {shlex.quote(str(stage / 'files.tar'))} /",
        f'--{last}=chroot "$1" {shlex.join(inside)}',
        f"--{last}={normalise}",
    ]


def _render_script(recipe: Recipe, sources: tuple[AptSource, ...]) -> bytes:
    """The recipe's commands, each announced, so that a failure can be told from another."""
    lines = ["set -e", "export HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive"]
    if recipe.variant != "extract":
        # mmdebstrap's own copy may hold a password.
        text = "".join(f"{source.without_secrets().render()}\n" for source in sources)
        lines.append("rm -f /etc/apt/sources.list.d/*")
        lines.append(f"cat >/etc/apt/sources.list <<'END_OF_SOURCES'\n{text}END_OF_SOURCES")
    for number, command in enumerate(recipe.commands, 1):
        first = command.strip().splitlines()[0]
        lines.append(f"echo {shlex.quote(f'I: step {number}: {first}')}")
        lines.append(command)
    return ("\n".join(lines) + "\n").encode()


async def _inherited_options() -> list[str]:
    """The machine's own proxy and certificate settings of apt."""
    done = await run(["apt-config", "dump", *_INHERITED], timeout_s=30.0, check=False)
    lines = done.stdout.decode(errors="replace").splitlines()
    return [line.removesuffix(";") for line in lines if line.startswith(_INHERITED)]


def _keep_packages(fresh: Path, packages: Path) -> None:
    """Replace the cached packages by those of this build."""
    keep = {path.name for path in fresh.glob("*.deb")}
    for old in packages.glob("*.deb"):
        if old.name not in keep:
            old.unlink(missing_ok=True)
    for path in fresh.glob("*.deb"):
        if not (packages / path.name).exists():
            with contextlib.suppress(OSError):
                shutil.move(path, packages / path.name)


class _Watcher:
    """Turns mmdebstrap's lines into progress and remembers the last step and errors."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._step = "starting"
        self._errors: list[str] = []

    def take(self, line: str) -> None:
        match = _STEP.match(line.strip())
        if match is not None and not _INTERNAL.match(line):
            info = match["info"] or f"{match['verb'].lower()} {match['package']}"
            self._step = info.rstrip(".")[:120]
            self._progress(ProgressEvent(self._step))
        elif _ERROR.match(line) and len(self._errors) < 50:
            self._errors.append(line.strip()[:400])

    def explain(self) -> str:
        said = "; ".join(self._errors[:3])
        return f"{self._step} failed" + (f": {said}" if said else "")


def layer_digest(archive: Path) -> tuple[str, int]:
    """The digest and size of an archive, to unpack it like a layer."""
    with archive.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return f"sha256:{digest}", archive.stat().st_size
