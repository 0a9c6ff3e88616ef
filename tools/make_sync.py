"""Makes the sync half of the SDK from the async half.

Token by token: ``async``, ``await`` go, and names change as in ``NAMES``; comments and strings have
whole words changed. What no rename can express lives in the hand-written pairs (``_io_*``,
``_handles_*``, ``_faces_*``). The result is formatted by ruff and committed; ``--check`` says
whether it is fresh.
"""

from __future__ import annotations

import argparse
import difflib
import io
import re
import subprocess
import sys
import tokenize
from pathlib import Path

SDK = Path(__file__).resolve().parent.parent / "src" / "tupper" / "sdk"
ASYNC_ONLY = {"watch.py"}
BANNER = "# Made by tools/make_sync.py from {source}. Do not edit.\n"
NAMES = {
    "AsyncCommandHandle": "CommandHandle",
    "AsyncCommands": "Commands",
    "AsyncFileStreamReader": "FileStreamReader",
    "AsyncFilesystem": "Filesystem",
    "AsyncGit": "Git",
    "AsyncPty": "Pty",
    "AsyncSandbox": "Sandbox",
    "AsyncSandboxEvents": "SandboxEvents",
    "AsyncSandboxPaginator": "SandboxPaginator",
    "AsyncVolume": "Volume",
    "AsyncSecret": "Secret",
    "AsyncSecretPaginator": "SecretPaginator",
    "AsyncSnapshotPaginator": "SnapshotPaginator",
    "AsyncTemplate": "Template",
    "AsyncWriteData": "WriteData",
    "AsyncWriteEntry": "WriteEntry",
    "AsyncIterable": "Iterable",
    "AsyncIterator": "Iterator",
    "StopAsyncIteration": "StopIteration",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
    "aclose": "close",
    "anext": "next",
    "_async": "_sync",
    "_io_async": "_io_sync",
    "_handles_async": "_handles_sync",
    "_faces_async": "_faces_sync",
}
_WORDS = re.compile(r"\b(" + "|".join(map(re.escape, NAMES)) + r")\b")


def make_sync(source: str) -> str:
    """The sync twin of a module's text."""
    lines = source.splitlines(keepends=True)
    edits: list[tuple[int, int, int, str]] = []
    tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    for token, following in zip(tokens, [*tokens[1:], tokens[-1]], strict=True):
        row, start = token.start
        if token.type == tokenize.NAME and token.string in ("async", "await"):
            edits.append((row, start, following.start[1], ""))
        elif token.type == tokenize.NAME and token.string in NAMES:
            edits.append((row, start, token.end[1], NAMES[token.string]))
    for row, start, end, text in sorted(edits, reverse=True):
        line = lines[row - 1]
        lines[row - 1] = line[:start] + text + line[end:]
    return _rename_in_text("".join(lines))


def _rename_in_text(source: str) -> str:
    """Change words in strings and comments, and the ``async with`` of examples."""
    out: list[str] = []
    position = (1, 0)
    lines = source.splitlines(keepends=True)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in (tokenize.STRING, tokenize.COMMENT):
            continue
        out.append(_between(lines, position, token.start))
        text = _WORDS.sub(lambda match: NAMES[match[1]], token.string)
        text = re.sub(r"\basync with await ", "with ", text)
        text = re.sub(r"\basync (with|for|def)\b", r"\1", text)
        out.append(re.sub(r"\bawait (?=[a-z_]+[.(])", "", text))
        position = token.end
    out.append(_between(lines, position, (len(lines) + 1, 0)))
    return "".join(out)


def _between(lines: list[str], start: tuple[int, int], end: tuple[int, int]) -> str:
    if start[0] == end[0]:
        return lines[start[0] - 1][start[1] : end[1]]
    first = lines[start[0] - 1][start[1] :] if start[0] <= len(lines) else ""
    last = lines[end[0] - 1][: end[1]] if end[0] <= len(lines) else ""
    return first + "".join(lines[start[0] : end[0] - 1]) + last


def format_source(text: str, name: str) -> str:
    """The text as ruff formats it, with its imports sorted."""
    for arguments in (["check", "--select", "I", "--fix", "--quiet"], ["format", "--quiet"]):
        command = [sys.executable, "-m", "ruff", *arguments]
        command += ["--config", str(SDK.parents[2] / "pyproject.toml")]
        done = subprocess.run(
            [*command, "--stdin-filename", str(SDK / "_generated" / name), "-"],
            input=text,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise SystemExit(f"ruff {arguments[0]} failed on {name}: {done.stderr}")
        text = done.stdout
    return text


def render(source: Path) -> str:
    """The sync twin of a file, ready to be written."""
    text = make_sync(source.read_text())
    return format_source(BANNER.format(source=f"_async/{source.name}") + text, source.name)


def main() -> int:
    """Write, or compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only say whether it is fresh")
    check = parser.parse_args().check
    sources = [
        path for path in sorted((SDK / "_async").glob("*.py")) if path.name not in ASYNC_ONLY
    ]
    stale = 0
    for source in sources:
        target = SDK / "_sync" / source.name
        text = render(source)
        old = target.read_text() if target.exists() else ""
        if text == old:
            continue
        stale += 1
        if check:
            sys.stdout.writelines(
                difflib.unified_diff(
                    old.splitlines(True), text.splitlines(True), str(target), "new"
                )
            )
        else:
            target.write_text(text)
    for left in {path.name for path in (SDK / "_sync").glob("*.py")} - {p.name for p in sources}:
        stale += 1
        print(f"{left} has no source any more")
        if not check:
            (SDK / "_sync" / left).unlink()
    return 1 if check and stale else 0


if __name__ == "__main__":
    raise SystemExit(main())
