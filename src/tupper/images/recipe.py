"""Recipes of templates: data, a directory with ``template.toml`` and an optional ``files`` tree.

**Shape** of ``template.toml``::

    description = "one line"
    kind = "debian"                # from this machine's own mirror, or:
    from = "base"                  # on another template or image, run inside a sandbox
    packages = ["bash", "…"]
    variant = "minbase"            # mmdebstrap's; "extract" installs nothing but the files
    shell = ["/bin/sh"]            # what runs the commands inside
    commands = ["useradd …"]
    exclude = ["/usr/share/doc/*"] # paths that packages do not bring
    [config]
    user = "user"
    workdir = ""
    env = { LANG = "C.UTF-8" }
    cmd = ["/bin/bash"]
    start = "service --port 80"    # runs in every sandbox, as the user
    ready = "curl -sf localhost"   # succeeds once it is ready

Files of the tree belong to root, 0644, or 0755 if they are executable; ``commands`` may change it.
"""

from __future__ import annotations

import hashlib
import io
import re
import tarfile
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from tupper.core.backend import ImageConfig
from tupper.core.errors import TemplateError
from tupper.protocol.naming import check_name

_KEYS = {
    "description", "kind", "from", "packages", "variant", "shell", "commands", "exclude", "config",
}  # fmt: skip
_CONFIG_KEYS = {"user", "workdir", "env", "cmd", "entrypoint", "start", "ready"}
_VARIANTS = {"minbase", "extract", "apt", "standard"}
_PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.-]+")


@dataclass(frozen=True, slots=True)
class Recipe:
    """A recipe that was read and checked.

    Args:
        name: of the template.
        directory: where the recipe is.
        description: one line.
        base: the template or image that it starts from; empty for ``kind = "debian"``.
        packages, commands, exclude, shell, variant: see the module.
        config: what the result says about processes.
    """

    name: str
    directory: Path
    description: str
    base: str
    packages: tuple[str, ...]
    variant: str
    shell: tuple[str, ...]
    commands: tuple[str, ...]
    exclude: tuple[str, ...]
    config: ImageConfig

    def digest(self, *context: str) -> str:
        """``sha256:…`` of all that decides the result.

        Args:
            context: what does so besides the recipe: sources, architecture.
        """
        total = hashlib.sha256()
        parts = [*context, (self.directory / "template.toml").read_text()]
        for name, path in self.files():
            content = hashlib.sha256(_content(path)).hexdigest()
            parts.append(f"{name} {_mode(path):o} {content}")
        for part in parts:
            total.update(f"{len(part.encode())}:{part}".encode())
        return f"sha256:{total.hexdigest()}"

    def files(self) -> Iterator[tuple[str, Path]]:
        """The tree: (name inside, path), parents first."""
        top = self.directory / "files"
        for path in sorted(top.rglob("*")) if top.is_dir() else ():
            yield path.relative_to(top).as_posix(), path

    def tar(self, extra: Mapping[str, bytes]) -> bytes:
        """The tree as a tar archive, owned by root, and more files beside it."""
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for name, path in self.files():
                info = tarfile.TarInfo(name)
                info.mode = _mode(path)
                if path.is_symlink():
                    info.type, info.linkname = tarfile.SYMTYPE, str(path.readlink())
                    archive.addfile(info)
                elif path.is_dir():
                    info.type = tarfile.DIRTYPE
                    archive.addfile(info)
                else:
                    data = path.read_bytes()
                    info.size = len(data)
                    archive.addfile(info, io.BytesIO(data))
            for name, data in extra.items():
                info = tarfile.TarInfo(name)
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
        return buffer.getvalue()


def read_recipe(directory: Path) -> Recipe:
    """Read and check a recipe.

    Raises:
        TemplateError: naming the file and what is wrong with it.
    """
    file = directory / "template.toml"
    where = f"{directory.name}/template.toml"
    try:
        body: dict[str, object] = tomllib.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise TemplateError(f"cannot read {where}: {error}") from error
    _check_keys(body, _KEYS, where)
    base = _text(body, "from", where)
    kind = _text(body, "kind", where) or ("" if base else "debian")
    if (kind == "debian") == bool(base) or kind not in {"", "debian"}:
        raise TemplateError(f'{where}: give either kind = "debian" or from = "…"')
    variant = _text(body, "variant", where) or "minbase"
    if variant not in _VARIANTS:
        raise TemplateError(f"{where}: variant {variant!r} is none of {sorted(_VARIANTS)}")
    packages = _texts(body, "packages", where)
    for package in packages:
        if not _PACKAGE.fullmatch(package):
            raise TemplateError(f"{where}: {package!r} is not the name of a package")
    return Recipe(
        name=check_name(directory.name),
        directory=directory,
        description=_text(body, "description", where),
        base=base,
        packages=packages,
        variant=variant,
        shell=_texts(body, "shell", where) or ("/bin/sh",),
        commands=_texts(body, "commands", where),
        exclude=_texts(body, "exclude", where),
        config=_parse_config(body.get("config", {}), where),
    )


def _parse_config(value: object, where: str) -> ImageConfig:
    if not isinstance(value, dict):
        raise TemplateError(f"{where}: config is not a table")
    body = cast("dict[str, object]", value)
    _check_keys(body, _CONFIG_KEYS, f"{where}: config")
    env = body.get("env", {})
    if not isinstance(env, dict):
        raise TemplateError(f"{where}: config.env is not a table")
    return ImageConfig(
        env={str(k): str(v) for k, v in cast("dict[object, object]", env).items()},
        workdir=_text(body, "workdir", where),
        user=_text(body, "user", where),
        entrypoint=_texts(body, "entrypoint", where),
        cmd=_texts(body, "cmd", where),
        start=_text(body, "start", where),
        ready=_text(body, "ready", where),
    )


def _check_keys(body: Mapping[str, object], known: set[str], where: str) -> None:
    unknown = sorted(set(body) - known)
    if unknown:
        raise TemplateError(f"{where}: unknown key {unknown[0]!r}; known: {sorted(known)}")


def _text(body: Mapping[str, object], key: str, where: str) -> str:
    value = body.get(key, "")
    if not isinstance(value, str):
        raise TemplateError(f"{where}: {key} is not a text")
    return value


def _texts(body: Mapping[str, object], key: str, where: str) -> tuple[str, ...]:
    value = body.get(key, [])
    items = cast("list[object]", value) if isinstance(value, list) else [value]
    if not isinstance(value, list) or not all(isinstance(item, str) for item in items):
        raise TemplateError(f"{where}: {key} is not a list of texts")
    return tuple(str(item) for item in items)


def _content(path: Path) -> bytes:
    if path.is_symlink():
        return str(path.readlink()).encode()
    return path.read_bytes() if path.is_file() else b""


def _mode(path: Path) -> int:
    if path.is_dir() or path.is_symlink():
        return 0o755
    return 0o755 if path.stat().st_mode & 0o100 else 0o644
