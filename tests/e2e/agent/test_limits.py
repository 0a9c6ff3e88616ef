"""Limits on processes, on both platforms of gVisor that need no hardware."""

import contextlib

import pytest

from e2e.cases.waiting import wait_for
from tupper import CommandExitException, Sandbox, SandboxException

PIDS = 128
BOMB = ":(){ :|:& };:"


@pytest.fixture(scope="module", params=["systrap", "ptrace"])
def small(request):
    with Sandbox.create(
        timeout=900, pids=PIDS, backend="gvisor", backend_options={"platform": request.param}
    ) as sandbox:
        yield sandbox


@pytest.mark.parametrize("user", ["user", "root"])
def test_every_command_is_limited_from_its_first_moment(small, user):
    for _ in range(20):
        assert small.commands.run("ulimit -u", user=user).stdout == f"{PIDS}\n"


def test_nobody_raises_the_limit(small):
    for user in ("user", "root"):
        with pytest.raises(CommandExitException):
            small.commands.run(f"ulimit -u {PIDS + 1}", user=user)


def explode(sandbox, user):
    """Start a bomb; where another one is still about, it may find no room for its own shell."""
    with contextlib.suppress(CommandExitException):
        sandbox.commands.run(BOMB, user=user, timeout=30)


def comes_back(sandbox, user):
    """Wait until a command that forks works again for a user.

    A bomb swells and shrinks. A command that begins while it is small may meet it at its full size
    and fail to fork; one that begins while the table is full ends the bomb first.
    """

    def works():
        try:
            done = sandbox.commands.run("echo ok; (echo two); date >&2", user=user, timeout=60)
        except CommandExitException as error:
            if "Resource temporarily unavailable" in error.stderr:
                return False
            raise
        return done.stdout == "ok\ntwo\n"

    wait_for(works, 120)


@pytest.mark.parametrize("user", ["user", "root"])
def test_a_fork_bomb_is_ended_when_room_is_needed(small, user):
    explode(small, user)
    for name in (user, "user", "root"):
        comes_back(small, name)


def test_two_bombs_of_two_users(small):
    for user in ("user", "root"):
        explode(small, user)
    for user in ("user", "root"):
        comes_back(small, user)


def test_a_bomb_that_leaves_its_session(small):
    script = "f() { while :; do setsid sh -c 'sleep 30' & done; }; f"
    try:
        handle = small.commands.run(script, background=True)
    except SandboxException as error:
        pytest.fail(f"the bomb did not start: {error}")
    assert small.commands.run("echo ok", timeout=60).stdout == "ok\n"
    handle.kill()
    assert small.commands.run("echo ok", timeout=60).stdout == "ok\n"
    assert small.commands.run("pgrep -fc '^sleep 3[0]' || true", timeout=60).stdout == "0\n"
