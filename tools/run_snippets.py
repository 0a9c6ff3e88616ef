"""Check the Python blocks of README.md and docs/: ``python tools/run_snippets.py [--syntax]``.

Every block that begins with three backticks and ``python`` is compiled; without ``--syntax`` it
is also run, each in a fresh interpreter with the clone as working directory. A block that cannot
run by itself (it needs a paid service, or shows only a signature) is marked ``python no-run``.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_BLOCK = re.compile(r"^```python(?P<marks>[^\n]*)\n(?P<code>.*?)^```", re.MULTILINE | re.DOTALL)
_RUN_TIMEOUT_S = 300
_NOTES = "design"  # notation for developers, not code to run


@dataclass(frozen=True, slots=True)
class Snippet:
    """One block of code in a page.

    Args:
        page: path below the clone.
        line: of the page, where the code begins.
        code: the text of the block.
        runs: whether it stands on its own.
    """

    page: str
    line: int
    code: str
    runs: bool

    @property
    def name(self) -> str:
        """``docs/quickstart.md:12``."""
        return f"{self.page}:{self.line}"


def find_snippets(root: Path = ROOT) -> Iterator[Snippet]:
    """All Python blocks of all pages."""
    for page in [root / "README.md", *sorted((root / "docs").rglob("*.md"))]:
        if not page.is_file() or page.parent.name == _NOTES:
            continue
        content = page.read_text()
        for match in _BLOCK.finditer(content):
            line = content.count("\n", 0, match.start("code")) + 1
            name = str(page.relative_to(root))
            yield Snippet(name, line, match["code"], runs="no-run" not in match["marks"].split())


def check_syntax(snippet: Snippet) -> str:
    """What is wrong with the block as Python; empty if nothing."""
    try:
        compile(snippet.code, snippet.name, "exec", dont_inherit=True)
    except SyntaxError as error:
        return f"{snippet.page}:{snippet.line + (error.lineno or 1) - 1}: {error.msg}"
    return ""


def run_snippet(snippet: Snippet) -> str:
    """Run the block; what went wrong, or empty."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", snippet.code],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_RUN_TIMEOUT_S,
        check=False,
    )
    return "" if done.returncode == 0 else f"{snippet.name}: {done.stdout[-4000:]}"


def main() -> int:
    """Check all blocks."""
    problems: list[str] = []
    count = 0
    for snippet in find_snippets():
        count += 1
        problem = check_syntax(snippet)
        if not problem and snippet.runs and "--syntax" not in sys.argv[1:]:
            problem = run_snippet(snippet)
        if problem:
            problems.append(problem)
    for problem in problems:
        print(problem, file=sys.stderr)
    print(f"{count} blocks, {len(problems)} wrong")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
