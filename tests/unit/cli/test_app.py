"""The root command: speed, guesses, exit codes."""

import ast
import importlib.util
import inspect
import sys

import click
import pytest

from tupper.cli import _app


def run(*arguments):
    with pytest.raises(SystemExit) as stop:
        _app.main(arguments)
    return stop.value.code


def test_help_lists_every_verb_and_imports_none(capsys, monkeypatch):
    for verb in _app.VERBS.values():
        monkeypatch.delitem(sys.modules, verb.module, raising=False)
    assert run("--help") == 0
    out = capsys.readouterr().out
    for name, verb in _app.VERBS.items():
        assert name in out
        assert verb.module not in sys.modules


def test_the_root_imports_nothing_heavy():
    allowed = {"click", "tupper.cli._output", "tupper.cli"}
    for module in ("tupper.cli._app", "tupper.cli._output"):
        source = importlib.util.find_spec(module).loader.get_source(module)
        for node in ast.parse(source).body:
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                assert name in allowed or name.split(".")[0] in sys.stdlib_module_names, name


@pytest.mark.parametrize("name", list(_app.VERBS))
def test_every_verb_is_there_with_help_and_the_same_name(name):
    command = _app.root.get_command(click.Context(_app.root), name)
    assert command.name == name
    assert command.help
    for child in getattr(command, "commands", {}).values():
        assert child.help


def test_every_listing_has_json_and_quiet():
    for path in (["list"], ["image", "list"], ["template", "list"], ["stats"]):
        command = _app.root
        for name in path:
            command = command.get_command(click.Context(command), name)
        options = {option for parameter in command.params for option in parameter.opts}
        assert {"--json", "-q"} <= options, path


def test_a_mistyped_verb_gets_a_guess(capsys):
    assert run("lsit") == 2
    err = capsys.readouterr().err
    assert "error: no command 'lsit'" in err
    assert "did you mean list" in err


@pytest.mark.parametrize(("verb", "code"), [("exec", 125), ("run", 125), ("kill", 2), ("port", 2)])
def test_a_wrong_command_line_cannot_be_taken_for_the_commands_code(verb, code, capsys):
    assert run(verb) == code
    assert capsys.readouterr().err.startswith("error: ")


@pytest.mark.parametrize(("verb", "code"), [("exec", 125), ("info", 1)])
def test_a_failure_of_ours_has_its_own_code(verb, code, capsys, monkeypatch):
    def fail(_ctx, _name):
        @click.command(context_settings={"ignore_unknown_options": True})
        @click.argument("rest", nargs=-1)
        def broken(rest):
            raise ValueError(f"broken {inspect.isclass(rest)}")

        return broken

    monkeypatch.setattr(type(_app.root), "get_command", lambda _self, ctx, name: fail(ctx, name))
    assert run(verb, "x") == code
    assert "error: ValueError: broken" in capsys.readouterr().err


def test_ctrl_c_is_130(monkeypatch):
    def interrupt(**_):
        raise KeyboardInterrupt

    monkeypatch.setattr(_app.root, "main", interrupt)
    assert run("list") == 130


def test_version(capsys):
    assert run("--version") == 0
    assert capsys.readouterr().out.startswith("tupper ")
