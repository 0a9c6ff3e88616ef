"""``--json``: what docs/cli.md promises is what there is."""

import dataclasses
import re
from pathlib import Path

import click
import pytest

from tupper import SandboxEvent, SandboxInfo, SandboxMetrics
from tupper.cli import _app, _settings
from tupper.cli.doctor import probe_as_json
from tupper.core.backend import Probe

PAGE = (Path(__file__).parents[3] / "docs" / "cli.md").read_text()


def promised():
    """Verb → (what the document is, its keys)."""
    section = PAGE.split("## JSON\n")[1].split("\n## ")[0]
    found = {}
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 3 and cells[0].startswith("`"):
            for verb in re.findall(r"`([^`]+)`", cells[0]):
                found[verb] = cells[1], re.findall(r"`([^`]+)`", cells[2])
    return found


def commands(group, path=()):
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        if isinstance(command, click.Group):
            if (*path, name) != ("sandbox",):
                yield from commands(command, (*path, name))
        else:
            yield " ".join((*path, name)), command


def test_every_command_with_json_is_described_and_no_other():
    with_json = {
        name
        for name, command in commands(_app.root)
        if any("--json" in parameter.opts for parameter in command.params)
    }
    assert with_json == set(promised())


@pytest.mark.parametrize(
    ("verb", "kind"), [("info", SandboxInfo), ("events", SandboxEvent), ("stats", SandboxMetrics)]
)
def test_keys_are_those_of_the_sdk(verb, kind):
    assert promised()[verb][1] == [field.name for field in dataclasses.fields(kind)]


def test_keys_of_what_is_asked_of_the_host(tmp_path):
    assert promised()["doctor"][1] == list(probe_as_json(Probe("b", usable=False)))
    assert promised()["config"][1] == list(_settings.describe({"TUPPER_HOME": str(tmp_path)}))
