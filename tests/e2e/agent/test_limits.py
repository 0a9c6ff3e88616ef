"""Limits on processes, on both platforms of gVisor that need no hardware."""

import pytest

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


@pytest.mark.parametrize("user", ["user", "root"])
def test_a_fork_bomb_is_ended_when_room_is_needed(small, user):
    small.commands.run(BOMB, user=user, timeout=30)
    for name in (user, "user", "root"):
        assert small.commands.run(
            "echo ok; (echo two); date >&2", user=name, timeout=60
        ).stdout == ("ok\ntwo\n")
    small.commands.run(BOMB, user=user, timeout=30)
    assert small.commands.run("echo ok", user=user, timeout=60).stdout == "ok\n"


def test_two_bombs_of_two_users(small):
    for user in ("user", "root"):
        small.commands.run(BOMB, user=user, timeout=30)
    for user in ("user", "root"):
        assert small.commands.run("echo ok", user=user, timeout=60).stdout == "ok\n"


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
