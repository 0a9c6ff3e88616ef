"""Sandboxes of an ordinary user, from ``tupper doctor`` to the last process.

Root makes the world (see ``user_world``); what runs in it has no privilege at all.
"""

import os
import shutil
import stat
from pathlib import Path

import pytest

from tupper.core.paths import find_paths
from user_world import NAME, UserWorld, temporary_world, why_not

pytestmark = [pytest.mark.root, pytest.mark.gvisor, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def world():
    if reason := why_not():
        pytest.skip(reason)
    world = temporary_world()
    world.install()
    lend_runsc(world)
    lend_kernels(world)
    readable = world.run(world.python, "-c", "import tupper, click, pytest", check=False)
    if readable.returncode:
        world.remove()
        pytest.skip(f"the packages of the tests are not readable by others: {readable.stderr}")
    yield world
    end = "from tupper.cli.kill import end_everything; end_everything()"
    world.run(world.python, "-c", end, TUPPER_HOME=str(world.home / "t"))
    left = world.processes()
    world.remove()
    assert not left, f"processes of the user are left: {left}"


def lend_runsc(world):
    """The runsc that the tests use, so that it is not fetched again."""
    ours = find_paths().data / "backends" / "gvisor" / "runsc"
    if ours.exists():
        place = world.home / "t" / "backends" / "gvisor"
        world.run("mkdir", "-p", "-m", "700", place)
        shutil.copy(ours, place / "runsc")
        shutil.chown(place / "runsc", place.stat().st_uid, place.stat().st_gid)


def lend_kernels(world):
    """The kernels of virtual machines likewise."""
    ours = find_paths().data / "backends" / "qemu" / "kernels"
    if ours.is_dir():
        place = world.home / "t" / "backends" / "qemu"
        world.run("mkdir", "-p", "-m", "700", place)
        shutil.copytree(ours, place / "kernels")
        for path in [place / "kernels", *(place / "kernels").rglob("*")]:
            shutil.chown(path, place.stat().st_uid, place.stat().st_gid)


def tupper(world, *argv, **options):
    home = str(world.home / "t")
    return world.run(world.python, "-m", "tupper", *argv, TUPPER_HOME=home, **options)


def run_tests(world, name):
    tests = world.code / "tests" / "integration" / "user" / name
    home = str(world.home / "t")
    argv = [world.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=short"]
    argv += ["-c", world.code / "pyproject.toml", "--rootdir", world.code, tests]
    done = world.run(*argv, TUPPER_HOME=home, TUPPER_TEST_HOME=home, timeout_s=1000, check=False)
    print(done.stdout)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert " passed" in done.stdout


def test_setup_and_doctor(world):
    said = tupper(world, "setup", "--only", "backends", check=False)
    if said.returncode:
        pytest.skip(f"no runsc for the user: {said.stderr}")
    said = tupper(world, "doctor").stdout
    assert "usable" in said
    assert "user-kernel" in said
    assert "guarded, not limited" in said


def test_what_every_backend_must_do(world):
    run_tests(world, "as_user_contract.py")


def test_what_every_backend_must_do_on_qemu(world):
    run_tests(world, "as_user_qemu.py")


def test_sandboxes_through_the_sdk(world):
    run_tests(world, "as_user_sdk.py")


def test_builds_of_templates(world):
    run_tests(world, "as_user_builds.py")


@pytest.mark.parametrize(
    ("options", "reason", "remedy"),
    [
        ({"tun": False}, "/dev/net/tun cannot be opened by this user", "sudo chmod 0666 /dev/net/tun"),
        ({"ranges": False}, "/etc/subuid and /etc/subgid give no ids", f"sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 {NAME}"),
    ],
)  # fmt: skip
def test_doctor_says_what_is_missing_and_what_to_do(world, options, reason, remedy):
    poor = UserWorld(world.top, **options)
    said = tupper(poor, "doctor", check=False)
    assert said.returncode == 1
    assert reason in said.stdout
    assert f"remedy      run: {remedy}" in said.stdout


def test_the_host_is_untouched(world):
    assert NAME not in Path("/etc/passwd").read_text()
    assert NAME not in Path("/etc/subuid").read_text()
    assert stat.S_ISCHR(os.stat("/dev/net/tun").st_mode)
