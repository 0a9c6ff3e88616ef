"""The configuration: what a user sets once instead of with every call.

Sources, the first that has a value wins: arguments (the caller's business), environment variables
``TUPPER_*``, the project file ``tupper.{toml,yaml,yml,json}`` in the working directory, the user's
file ``config.{toml,yaml,yml,json}`` in the configuration directory. A file looks like this::

    url = "http://server:7070"        # user's file only, like api_key and [settings]
    profile = "data-science"          # used when a call names none

    [settings]                        # of the engine, see core.settings
    allow_internet_access = false

    [defaults]                        # for every create
    memory = "2GiB"

    [profiles.data-science]           # for Sandbox.create(profile="data-science")
    extends = "python"
    image = "docker.io/library/python:3.13"

A project file may come from somebody else's repository, so it can set neither where to connect nor
anything of the engine, nor what weakens isolation, and its mounts stay inside the project.
"""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, cast

from tupper.core.errors import InvalidArgument, ProfileNotFound
from tupper.core.paths import Paths
from tupper.core.settings import Settings

SUFFIXES = (".toml", ".yaml", ".yml", ".json")
_TOP_KEYS = frozenset({"url", "api_key", "profile", "settings", "defaults", "profiles"})
_USER_ONLY = frozenset({"url", "api_key", "settings"})
_USER_ONLY_CREATE = frozenset({"allow_host_ports", "backend_options", "owner", "fallback"})
# A backend that is somebody else's machine: what runs there has left this one.
_ELSEWHERE = frozenset({"e2b"})

CREATE_KEYS: Mapping[str, tuple[type, ...]] = {
    "template": (str,),
    "image": (str,),
    "timeout": (int, float),
    "idle_timeout": (int, float),
    "metadata": (dict,),
    "labels": (dict,),
    "envs": (dict,),
    "allow_internet_access": (bool,),
    "network": (dict,),
    "backend": (str,),
    "min_isolation": (str,),
    "cpus": (int, float),
    "memory": (int, str),
    "disk": (int, str),
    "pids": (int,),
    "mounts": (list,),
    "volumes": (dict,),
    "ports": (list, dict),
    "workdir": (str,),
    "user": (str,),
    "backend_options": (dict,),
    "allow_host_ports": (list,),
    "owner": (str,),
    "fallback": (list,),
}
_ENV_CREATE = ("template", "image", "timeout", "idle_timeout", "min_isolation", "workdir", "user")


@dataclass(frozen=True, slots=True)
class Config:
    """The configuration, all sources merged.

    Args:
        url: of the server; empty for the local background process.
        api_key: for it.
        profile: the profile that is used when a call names none; empty for none.
        defaults: create arguments for every sandbox.
        profiles: name → create arguments, ``extends`` among them.
        settings: of the engine.
        files: the files that were read.
    """

    url: str = ""
    api_key: str = ""
    profile: str = ""
    defaults: Mapping[str, object] = field(default_factory=dict[str, object])
    profiles: Mapping[str, Mapping[str, object]] = field(
        default_factory=dict[str, Mapping[str, object]]
    )
    settings: Settings = field(default_factory=Settings)
    files: tuple[Path, ...] = ()

    def create_defaults(self, profile: str | None = None) -> dict[str, object]:
        """The create arguments of a profile on top of those for every sandbox.

        Args:
            profile: its name; None for the configured one, if any.

        Errors:
            ProfileNotFound: there is none of this name; the text lists those that are.
            InvalidArgument: profiles that extend each other in a circle.
        """
        merged = dict(self.defaults)
        name = self.profile if profile is None else profile
        for layer in reversed(self._chain(name) if name else []):
            merged.update(layer)
        merged.pop("extends", None)
        return merged

    def _chain(self, name: str) -> list[Mapping[str, object]]:
        """The profile, then the one it extends, and so on."""
        chain: list[Mapping[str, object]] = []
        seen: list[str] = []
        while name:
            if name in seen:
                raise InvalidArgument(f"profiles extend each other: {' -> '.join([*seen, name])}")
            if name not in self.profiles:
                raise self._unknown_profile(name, seen)
            seen.append(name)
            chain.append(self.profiles[name])
            name = str(self.profiles[name].get("extends") or "")
        return chain

    def _unknown_profile(self, name: str, seen: list[str]) -> ProfileNotFound:
        known = ", ".join(sorted(self.profiles)) or "none is configured"
        by = f", which profile {seen[-1]!r} extends" if seen else ""
        near = difflib.get_close_matches(name, self.profiles, 1)
        return ProfileNotFound(
            f"no profile {name!r}{by}; known: {known}",
            hint=f"did you mean {near[0]!r}?" if near else None,
        )

    @staticmethod
    def fingerprint(paths: Paths, cwd: Path | None = None) -> tuple[object, ...]:
        """Changes when a configuration file appears, disappears or is written to."""
        found: list[object] = []
        for path in (*_candidates(paths.config, "config"), *_candidates(cwd or Path(), "tupper")):
            try:
                status = path.stat()
            except OSError:
                continue
            found.append((str(path), status.st_mtime_ns, status.st_size, status.st_ino))
        return tuple(found)


def load_config(
    paths: Paths, *, environ: Mapping[str, str] | None = None, cwd: str | Path | None = None
) -> Config:
    """Read and merge all sources.

    Args:
        paths: where the user's file is.
        environ: where ``TUPPER_*`` variables come from; none if None.
        cwd: where the project file is looked for; nowhere if None.

    Errors:
        InvalidArgument: a file that cannot be parsed, an unknown key (with the file, and the key
            that was probably meant), a value of the wrong type.
    """
    config = Config()
    user_file = _find(_candidates(paths.config, "config"))
    if user_file is not None:
        config = _merge(config, _File(user_file, is_project=False))
    project_file = None if cwd is None else _find(_candidates(Path(cwd), "tupper"))
    if project_file is not None:
        config = _merge(config, _File(project_file, is_project=True))
    return _with_environ(config, environ or {})


def _candidates(directory: Path, stem: str) -> tuple[Path, ...]:
    return tuple(directory / f"{stem}{suffix}" for suffix in SUFFIXES)


def _find(candidates: tuple[Path, ...]) -> Path | None:
    found = [path for path in candidates if path.is_file()]
    if len(found) > 1:
        raise InvalidArgument(
            f"two configuration files: {' and '.join(map(str, found[:2]))}", hint="keep one of them"
        )
    return found[0] if found else None


class _File:
    """One parsed file, and errors that name it.

    Args:
        path: of the file.
        is_project: whether it is the project's, which may set less.
    """

    def __init__(self, path: Path, *, is_project: bool) -> None:
        self.path = path
        self.is_project = is_project
        self.content = self.table(_parse(path), "the file")
        self.check_keys(self.content, _TOP_KEYS, "")
        if is_project:
            for key in sorted(_USER_ONLY & self.content.keys()):
                raise self.fail(f"a project file may not set {key!r}")

    def fail(self, text: str, hint: str | None = None) -> InvalidArgument:
        return InvalidArgument(f"{self.path}: {text}", hint=hint)

    def table(self, value: object, name: str) -> dict[str, object]:
        if not isinstance(value, dict):
            raise self.fail(f"{name} is not a table")
        table = cast("dict[object, object]", value)
        return {str(key): item for key, item in table.items()}

    def check_keys(self, table: Mapping[str, object], known: frozenset[str], where: str) -> None:
        for key in table:
            if key not in known:
                near = difflib.get_close_matches(key, known, 1)
                hint = (
                    f"did you mean {near[0]!r}?" if near else f"known: {', '.join(sorted(known))}"
                )
                raise self.fail(f"unknown key {where}{key}", hint)

    def text(self, key: str, default: str) -> str:
        value = self.content.get(key, default)
        if not isinstance(value, str):
            raise self.fail(f"{key} is not text")
        return value

    def create_arguments(self, value: object, where: str) -> dict[str, object]:
        table = self.table(value, where.rstrip("."))
        self.check_keys(table, frozenset({*CREATE_KEYS, "extends"}), where)
        for key, item in table.items():
            kinds = CREATE_KEYS.get(key, (str,))
            if not isinstance(item, kinds) or (isinstance(item, bool) and bool not in kinds):
                names = " or ".join(kind.__name__ for kind in kinds)
                raise self.fail(f"{where}{key} is {type(item).__name__}, not {names}")
            if self.is_project and key in _USER_ONLY_CREATE:
                raise self.fail(f"a project file may not set {where}{key}")
            if self.is_project and key == "backend" and item in _ELSEWHERE:
                raise self.fail(f"a project file may not set {where}backend to {item}")
        return self._anchor_mounts(table, where)

    def _anchor_mounts(self, table: dict[str, object], where: str) -> dict[str, object]:
        """Make host paths absolute: they are relative to the file, not to the process."""
        mounts = table.get("mounts")
        if isinstance(mounts, list):
            listed = cast("list[object]", mounts)
            table["mounts"] = [self._anchor_mount(item, f"{where}mounts") for item in listed]
        if "volumes" in table:
            items = self.table(table["volumes"], f"{where}volumes").items()
            table["volumes"] = {self._anchor(host, f"{where}volumes"): at for host, at in items}
        return table

    def _anchor_mount(self, item: object, where: str) -> object:
        if isinstance(item, str):
            host, colon, rest = item.partition(":")
            return self._anchor(host, where) + colon + rest
        if isinstance(item, list):
            parts = cast("list[object]", item)
            if parts and isinstance(parts[0], str):
                return (self._anchor(parts[0], where), *parts[1:])
        raise self.fail(f"{where}: a mount is 'host:guest[:ro]' or a list of these parts")

    def _anchor(self, host: str, where: str) -> str:
        base = self.path.parent.resolve()
        full = (base / Path(host).expanduser()).resolve()
        if self.is_project and not full.is_relative_to(base):
            raise self.fail(f"{where}: {host} lies outside the project, {base}")
        return str(full)


def _parse(path: Path) -> object:
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".toml":
            return tomllib.loads(text)
        if path.suffix == ".json":
            return json.loads(text)
        return _parse_yaml(text)
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"{path}: cannot be read: {error}") from error


def _parse_yaml(text: str) -> object:
    import yaml  # noqa: PLC0415 - slow to import, and most have no YAML file

    try:
        value: object = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error
    return {} if value is None else value


def _merge(config: Config, file: _File) -> Config:
    defaults = file.create_arguments(file.content.get("defaults", {}), "defaults.")
    profiles = {
        name: file.create_arguments(value, f"profiles.{name}.")
        for name, value in file.table(file.content.get("profiles", {}), "profiles").items()
    }
    return replace(
        config,
        url=file.text("url", config.url),
        api_key=file.text("api_key", config.api_key),
        profile=file.text("profile", config.profile),
        defaults={**config.defaults, **defaults},
        profiles={**config.profiles, **profiles},
        settings=_settings_from_file(config.settings, file),
        files=(*config.files, file.path),
    )


def _settings_from_file(settings: Settings, file: _File) -> Settings:
    table = file.table(file.content.get("settings", {}), "settings")
    kinds = _setting_kinds()
    file.check_keys(table, frozenset(kinds), "settings.")
    changes: dict[str, object] = {}
    for key, value in table.items():
        kind = kinds[key]
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)  # noqa: PLW2901 - TOML's 300 means 300.0 here
        if type(value) is not kind:
            raise file.fail(f"settings.{key} is {type(value).__name__}, not {kind.__name__}")
        changes[key] = value
    return _replace_settings(settings, changes)


def _setting_kinds() -> dict[str, type]:
    kinds: dict[str, type] = {}
    for item in fields(Settings):
        kinds[item.name] = dict if item.default is MISSING else type(item.default)
    return kinds


def _replace_settings(settings: Settings, changes: Mapping[str, object]) -> Settings:
    values: dict[str, Any] = dict(changes)  # their types were checked where they came from
    return replace(settings, **values)


def _with_environ(config: Config, environ: Mapping[str, str]) -> Config:
    changes: dict[str, object] = {}
    for key, kind in _setting_kinds().items():
        text = environ.get(f"TUPPER_{key.upper()}")
        if text is not None and kind is not dict:
            changes[key] = _parse_text(f"TUPPER_{key.upper()}", text, kind)
    defaults = dict(config.defaults)
    for key in _ENV_CREATE:
        if text := environ.get(f"TUPPER_{key.upper()}"):
            kind = float if int in CREATE_KEYS[key] else str
            defaults[key] = _parse_text(f"TUPPER_{key.upper()}", text, kind)
    return replace(
        config,
        url=environ.get("TUPPER_URL") or config.url,
        api_key=environ.get("TUPPER_API_KEY") or config.api_key,
        profile=environ.get("TUPPER_PROFILE") or config.profile,
        defaults=defaults,
        settings=_replace_settings(config.settings, changes),
    )


def _parse_text(name: str, text: str, kind: type) -> object:
    parse: Callable[[str], object] = _parse_bool if kind is bool else kind
    try:
        return parse(text)
    except ValueError:
        raise InvalidArgument(f"{name}={text!r} is not {kind.__name__}") from None


def _parse_bool(text: str) -> bool:
    known = {"1": True, "true": True, "yes": True, "on": True}
    known |= {"0": False, "false": False, "no": False, "off": False}
    if text.lower() not in known:
        raise ValueError(text)
    return known[text.lower()]
