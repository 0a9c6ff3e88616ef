"""Completion: of verbs without importing them, of sandboxes without starting anything."""

import sys

import pytest

from tupper import SandboxInfo, SandboxPaginator, SandboxState
from tupper.cli import _app, _sandboxes
from tupper.cli.completion import SHELLS


def run(*arguments):
    with pytest.raises(SystemExit) as stop:
        _app.main(arguments)
    return stop.value.code


def complete(monkeypatch, capsys, *words):
    monkeypatch.setenv("_TUPPER_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", " ".join(("tupper", *words)))
    monkeypatch.setenv("COMP_CWORD", str(len(words)))
    run()
    return [line.partition(",")[2] for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_for_each_shell(shell, capsys):
    assert run("completion", shell) == 0
    assert "_TUPPER_COMPLETE" in capsys.readouterr().out


def test_the_shell_is_guessed_from_the_environment(monkeypatch, capsys):
    monkeypatch.setenv("SHELL", "/usr/bin/fish")
    assert run("completion") == 0
    assert "fish_complete" in capsys.readouterr().out
    monkeypatch.setenv("SHELL", "/bin/false")
    assert run("completion") == 2
    assert "bash, zsh, fish" in capsys.readouterr().err


def test_verbs_come_without_their_modules(monkeypatch, capsys):
    for verb in _app.VERBS.values():
        monkeypatch.delitem(sys.modules, verb.module, raising=False)
    assert complete(monkeypatch, capsys, "res") == ["resume"]
    assert {"create", "kill"} <= set(complete(monkeypatch, capsys, ""))
    assert not [verb.module for verb in _app.VERBS.values() if verb.module in sys.modules]


def test_options_of_the_root(monkeypatch, capsys):
    assert complete(monkeypatch, capsys, "--ver") == ["--version"]


def test_sandboxes_by_name_and_id(monkeypatch, capsys):
    words = {"work": "i" + "a" * 20, "i" + "a" * 20: "base, running"}
    monkeypatch.setattr(_sandboxes, "words_for_completion", lambda: words)
    assert complete(monkeypatch, capsys, "kill", "w") == ["work"]
    assert complete(monkeypatch, capsys, "info", "ia") == ["i" + "a" * 20]


def test_nothing_is_started_for_it(monkeypatch, tmp_path):
    monkeypatch.setenv("TUPPER_HOME", str(tmp_path / "home"))
    assert _sandboxes.words_for_completion() == {}
    assert not (tmp_path / "home").exists()


def info(sandbox_id, name):
    return SandboxInfo(
        sandbox_id=sandbox_id, sandbox_domain=None, template_id="base", name=name, metadata={},
        started_at=None, end_at=None, state=SandboxState.RUNNING, cpu_count=1, memory_mb=1,
        envd_version="0",
    )  # fmt: skip


def test_the_alias_of_a_template_is_no_name(monkeypatch):
    monkeypatch.setenv("TUPPER_URL", "http://127.0.0.1:1")
    found = [info("i1", "work"), info("i2", "base")]
    monkeypatch.setattr(SandboxPaginator, "next_items", lambda _: found)
    words = _sandboxes.words_for_completion()
    assert words == {"work": "i1", "i1": "base, running", "i2": "base, running"}
