"""Which files of a build context count: ``.dockerignore`` and the patterns of COPY. Pure.

Source: Dockerfile reference, ".dockerignore file" and "COPY"; Go's ``filepath.Match``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence


class IgnoreRules:
    """The rules of a ``.dockerignore`` file.

    Args:
        text: of the file.

    The last rule that matches decides; ``!`` takes a file back in. ``**`` matches any number of
    directories, ``*`` and ``?`` never a slash. A rule for a directory counts for all below it.
    """

    def __init__(self, text: str) -> None:
        self._rules: list[tuple[re.Pattern[str], bool]] = []
        for raw in text.removeprefix("\ufeff").splitlines():
            line = raw.strip()
            if not line or line.startswith("#"):
                continue
            keep = line.startswith("!")
            pattern = _clean(line[keep:].strip())
            if pattern:
                self._rules.append((compile_pattern(pattern), keep))

    def ignores(self, path: str) -> bool:
        """Whether a path, relative to the context and with slashes, is left out."""
        ignored = False
        parts = path.split("/")
        for pattern, keep in self._rules:
            if ignored == keep and any(
                pattern.fullmatch("/".join(parts[:count])) for count in range(1, len(parts) + 1)
            ):
                ignored = not keep
        return ignored

    @property
    def has_exceptions(self) -> bool:
        """Whether an ignored directory must still be searched."""
        return any(keep for _, keep in self._rules)


def _clean(path: str) -> str:
    """Resolve ``.`` and ``..`` as Go's ``filepath.Clean`` does, relative to the top."""
    out: list[str] = []
    for part in path.split("/"):
        if part == "..":
            del out[-1:]
        elif part not in {"", "."}:
            out.append(part)
    return "/".join(out)


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """A pattern of ``.dockerignore`` or COPY as a regular expression for whole paths."""
    out: list[str] = []
    at = 0
    while at < len(pattern):
        if pattern.startswith("**/", at):
            out.append("(?:[^/]+/)*")
            at += 3
        elif pattern.startswith("**", at):
            out.append(".*")
            at += 2
        elif pattern[at] in "*?":
            out.append("[^/]*" if pattern[at] == "*" else "[^/]")
            at += 1
        elif pattern[at] == "[" and (end := pattern.find("]", at + 2)) > 0:
            body = pattern[at + 1 : end].replace("\\", "\\\\")
            body = "^" + body[1:] if body[0] in "^!" else body
            out.append(f"(?!/)[{body}]")
            at = end + 1
        else:
            at += pattern[at] == "\\" and at + 1 < len(pattern)
            out.append(re.escape(pattern[at]))
            at += 1
    return re.compile("".join(out), re.DOTALL)


def select(paths: Sequence[str], source: str) -> list[str]:
    """The paths of a context that a source of COPY names, with all below them.

    Args:
        paths: of all files and directories, relative, with slashes, without ignored ones.
        source: as in the expanded step; ``.`` and ``/`` mean everything.
    """
    pattern = _clean(source)
    if not pattern:
        return list(paths)
    compiled = compile_pattern(pattern)
    chosen: list[str] = []
    for path in paths:
        parts = path.split("/")
        if any(compiled.fullmatch("/".join(parts[:n])) for n in range(1, len(parts) + 1)):
            chosen.append(path)
    return chosen
