"""Templates from recipes: really built, with this machine's mirror."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from images_registry import needs_root
from tupper.core.errors import (
    AlreadyExists,
    InvalidArgument,
    TemplateError,
    TemplateNotFound,
)
from tupper.images import Templates

RECIPES = Path(__file__).parents[3] / "templates"
SHIPPED = ["base", "code-interpreter", "minimal"]
needs_tools = pytest.mark.skipif(
    shutil.which("mmdebstrap") is None, reason="mmdebstrap is not installed"
)


@pytest.fixture
def recipes(tmp_path):
    shutil.copytree(RECIPES, tmp_path / "recipes")
    return tmp_path / "recipes"


@needs_root
@needs_tools
@pytest.mark.timeout(400)
async def test_minimal_is_built_once_and_again_when_its_recipe_changes(images, recipes):
    templates = Templates(images, [recipes])
    events = []
    one, two = await asyncio.gather(
        templates.ensure("minimal", progress=events.append), templates.ensure("minimal")
    )
    assert one == two
    done = subprocess.run(
        ["/usr/sbin/chroot", one.path, "/bin/sh", "-l", "-c", "id -u user; ls / | wc -l; echo $HOME"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout.startswith("1000\n")
    assert (one.path / "home/user").stat().st_uid == 1000
    assert (one.path / "etc/machine-id").read_bytes() == b""
    assert (one.path / "etc/resolv.conf").read_bytes() == b""
    assert not (one.path / ".tupper").exists()
    assert [event.message for event in events if "step 1" in event.message]
    assert await templates.ensure("minimal") == one
    # Templates survive a prune; a changed recipe gives another tree and the old one can go.
    assert (await images.prune(in_use=[])).removed == ()
    (recipes / "minimal/files/etc/motd").write_text("changed\n")
    assert [info.is_current for info in await templates.list() if info.name == "minimal"] == [False]
    new = await templates.ensure("minimal")
    assert new.digest != one.digest
    assert (new.path / "etc/motd").read_text() == "changed\n"
    assert (await images.prune(in_use=[one.digest])).removed == ()
    assert (await images.prune(in_use=[])).removed == (one.digest,)
    await templates.remove("minimal")
    assert (await images.prune(in_use=[])).removed == (new.digest,)


@needs_root
@needs_tools
@pytest.mark.timeout(200)
async def test_a_failing_step_is_named_and_leaves_nothing(images, recipes):
    file = recipes / "minimal/template.toml"
    file.write_text(file.read_text().replace('"chmod 640 /etc/shadow"', '"/bin/false"'))
    with pytest.raises(TemplateError, match="step 6: /bin/false failed"):
        await Templates(images, [recipes]).ensure("minimal")
    assert os.listdir(images.store.directory / "staging") == []
    assert await images.list() == []


@needs_root
async def test_registered_templates(images, layout, recipes):
    from oci_writer import Item

    rootfs = await images.ensure(layout.publish(layout.image([[Item("x")]])))
    templates = Templates(images, [recipes])
    await templates.register("mine", rootfs)
    assert (await templates.ensure("mine")).digest == rootfs.digest
    assert {info.name for info in await templates.list()} == {*SHIPPED, "mine"}
    with pytest.raises(AlreadyExists):
        await templates.register("base", rootfs)
    assert (await images.prune(in_use=[])).removed == ()
    await templates.remove("mine")
    with pytest.raises(TemplateNotFound, match=f"known: {', '.join(SHIPPED)}"):
        await templates.ensure("mine")
    with pytest.raises(InvalidArgument):
        await templates.ensure("../base")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind = 'x'", "give either"),
        ("from = 'base'\nkind = 'debian'", "give either"),
        ("nonsense = 1", "unknown key 'nonsense'"),
        ("packages = ['--help']", "'--help' is not the name of a package"),
        ("packages = 'x'", "not a list"),
        ("= 1", "cannot read t/template.toml"),
        ("[config]\nfoo = 1", "unknown key 'foo'"),
        ("variant = 'x'", "variant 'x'"),
    ],
)
async def test_wrong_recipes_name_what_is_wrong(images, tmp_path, text, message):
    (tmp_path / "r/t").mkdir(parents=True)
    (tmp_path / "r/t/template.toml").write_text(text)
    with pytest.raises(TemplateError, match=re.escape(message)):
        await Templates(images, [tmp_path / "r"]).ensure("t")


async def test_commands_of_derived_recipes_never_run_on_this_machine(images, tmp_path, layout):
    (tmp_path / "r/t").mkdir(parents=True)
    reference = layout.publish(layout.image([[]]))
    (tmp_path / "r/t/template.toml").write_text(
        f"from = '{reference}'\ncommands = ['touch {tmp_path}/ran']"
    )
    with pytest.raises(TemplateError, match="only be built by the engine"):
        await Templates(images, [tmp_path / "r"]).ensure("t")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("home", ["root", "etc/skel"])
@pytest.mark.parametrize("flags", [["-l"], ["-l", "-i"], ["-i"]])
def test_the_profile_and_dotfiles_of_base_start_no_process(tmp_path, home, flags):
    """Traced in a shell that finds no programs: only builtins and assignments may run."""
    files = RECIPES / "base/files"
    profile = tmp_path / "profile"
    text = (files / "etc/profile").read_text().replace("/etc/", f"{files}/etc/")
    profile.write_text(text)
    for name in (".profile", ".bashrc"):
        shutil.copy(files / home / name, tmp_path / name)
    # -x prints every command; all must be shell builtins or assignments.
    script = f"PS4='+TRACE$BASH_SUBSHELL '; set -x; . {profile}; . {tmp_path}/.profile; . {tmp_path}/.bashrc; . {files}/etc/bash.bashrc; set +x;"
    done = subprocess.run(
        ["/bin/bash", "--noprofile", "--norc", *[flag for flag in flags if flag != "-l"], "-c", script],
        env={"HOME": str(tmp_path), "PATH": "/nowhere", "PS1": "x"},
        capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert "command not found" not in done.stderr
    assert "No such file" not in done.stderr
    assert done.returncode == 0
    lines = [line.lstrip("+") for line in done.stderr.splitlines() if line.startswith("+")]
    assert lines
    # A substitution or a subshell forks, and counts BASH_SUBSHELL up.
    assert [line for line in lines if not line.startswith("TRACE0 ")] == []
    traced = [line.removeprefix("TRACE0 ").split()[0] for line in lines]
    builtins = {
        "'['",
        "[",
        "for",
        "case",
        ".",
        "unset",
        "umask",
        "set",
        "return",
        "shopt",
        "alias",
        "export",
    }
    assert [word for word in traced if word not in builtins and "=" not in word] == []
