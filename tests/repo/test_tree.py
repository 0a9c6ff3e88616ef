"""Rules about the tree itself: sizes, names, what may not be committed."""

import ast
import re
import subprocess

import pytest

from repo.tool import ROOT

MAX_LINES = 800
GENERATED = "src/tupper/sdk/_sync/"
# Assembled, so that this file does not contain what it forbids.
FORBIDDEN = [
    "deb." + "debian.org",
    "pypi" + ".org",
    "files.python" + "hosted",
    "registry." + "npmjs",
    "proxy." + "golang",
    "/wo" + "rk/",
]
# A path of the developer's machine, or of a guest: only tests and the agent speak of the latter.
HOME_OF_ROOT = "/ro" + "ot/"
SPEAKS_OF_GUESTS = (
    "tests/",
    "agent/",
    "docs/",
    "benchmarks/command_roundtrip.py",
    "src/tupper/backends/gvisor/user.py",
)


def tracked(*patterns):
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z", "--", *patterns],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listing.returncode:
        pytest.skip("this is not a git clone")
    return [name for name in listing.stdout.split("\0") if name and (ROOT / name).is_file()]


def test_no_file_outgrows_one_room():
    sizes = {
        name: len((ROOT / name).read_text().splitlines())
        for name in tracked("*.py", "*.go", "*.ts")
        if not name.startswith(GENERATED)
    }
    assert {name: n for name, n in sizes.items() if n > MAX_LINES} == {}


def test_nothing_of_one_machine_is_committed():
    found = []
    for name in tracked():
        try:
            content = (ROOT / name).read_text()
        except UnicodeDecodeError:
            continue
        words = FORBIDDEN if name.startswith(SPEAKS_OF_GUESTS) else [*FORBIDDEN, HOME_OF_ROOT]
        found += [(name, word) for word in words if word in content]
    assert found == []


def test_no_binary_of_the_agent_is_committed():
    assert tracked("src/tupper/guest/bin/*") == []


@pytest.mark.parametrize("name", tracked("src/**/__init__.py", "src/tupper/__init__.py"))
def test_all_is_sorted_and_without_repetition(name):
    for node in ast.walk(ast.parse((ROOT / name).read_text())):
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            names = ast.literal_eval(node.value)
            assert list(names) == sorted(set(names))


def test_the_agent_depends_on_the_standard_library_alone():
    go_mod = ROOT / "agent" / "go.mod"
    if not go_mod.exists():
        pytest.skip("no agent sources here")
    directives = {line.split()[0] for line in go_mod.read_text().splitlines() if line.strip()}
    assert directives <= {"module", "go", "toolchain", "//"}
    assert not (go_mod.parent / "go.sum").exists()
    foreign = [
        (name, path)
        for name in tracked("agent/*.go", "agent/**/*.go")
        for path in re.findall(
            r'^\s*(?:import\s+)?(?:\w+\s+)?"([^"\n]+\.[^"\n]+/[^"\n]+)"$',
            (ROOT / name).read_text(),
            re.MULTILINE,
        )
        if not path.startswith("tupper.dev/agent")
    ]
    assert foreign == []


def test_only_one_module_starts_processes():
    # The background process becomes a newer version of itself; that starts nothing.
    allowed = {"src/tupper/core/process.py", "src/tupper/server/daemon.py"}
    starts = re.compile(
        r"\bsubprocess\.(?:run|Popen|call|check_\w+)\(|create_subprocess|os\.(?:system|popen|fork|exec\w+|spawn\w+|posix_spawn\w*)\("
    )
    found = [
        name
        for name in tracked("src/*.py", "src/**/*.py")
        if name not in allowed and starts.search((ROOT / name).read_text())
    ]
    assert found == []


def test_only_one_module_of_the_command_line_prints():
    prints = re.compile(
        r"^\s*(?:print\(|click\.(?:echo|secho)\(|sys\.std(?:out|err)\.)", re.MULTILINE
    )
    found = [
        name
        for name in tracked("src/tupper/cli/*.py")
        if not name.endswith("/_output.py") and prints.search((ROOT / name).read_text())
    ]
    assert found == ["src/tupper/cli/_app.py"] or found == []


def test_posix_only_modules_are_not_imported_at_the_top():
    posix_only = {"fcntl", "pwd", "grp", "termios", "tty", "pty", "resource", "syslog"}
    found = []
    for layer in ("core", "protocol", "sdk", "cli"):
        for name in tracked(f"src/tupper/{layer}/*.py", f"src/tupper/{layer}/**/*.py"):
            for node in ast.parse((ROOT / name).read_text()).body:
                names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
                names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                found += [(name, n) for n in names if n.split(".")[0] in posix_only]
    assert found == []
