"""The client's side: proxies of the user, cancelled work, lying guests, hostile trees."""

import asyncio
import contextlib
import os
import subprocess
import sys

import pytest

from e2e.cases.waiting import wait_for
from tupper import AsyncSandbox, SandboxException


def test_tb103_proxies_of_the_user_do_not_matter(sbx):
    env = dict(os.environ)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        env[name] = env[name.lower()] = "http://127.0.0.1:1"
    env["NO_PROXY"] = "10.0.0.0/8,::1"
    code = (
        "from tupper import Sandbox; "
        f"s = Sandbox.connect({sbx.sandbox_id!r}); print(s.commands.run('echo hi').stdout, end='')"
    )
    for argv in (
        [sys.executable, "-c", code],
        [sys.executable, "-m", "tupper", "exec", sbx.sandbox_id, "--", "echo", "hi"],
    ):
        result = subprocess.run(
            argv, check=False, env=env, capture_output=True, text=True, timeout=60
        )
        assert (result.stdout, result.returncode) == ("hi\n", 0), result.stderr


def test_tb105_a_cancelled_command_is_ended(sbx):
    async def main():
        other = await AsyncSandbox.connect(sbx.sandbox_id)
        task = asyncio.create_task(other.commands.run("sleep 500; touch /tmp/done-105", timeout=0))
        while "sleep 500" not in (await other.commands.run("ps -eo args")).stdout:
            await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    wait_for(lambda: sbx.commands.run('pgrep -fc "^sleep 500"; true').stdout == "0\n")
    assert not sbx.files.exists("/tmp/done-105")


def test_tb105_a_background_command_is_not(sbx):
    async def main():
        other = await AsyncSandbox.connect(sbx.sandbox_id)
        handle = await other.commands.run("sleep 501", background=True, timeout=0)
        await handle.disconnect()
        return handle.pid

    pid = asyncio.run(main())
    assert any(process.pid == pid for process in sbx.commands.list())
    assert sbx.commands.kill(pid) is True


def test_tb047_links_in_a_tree_are_never_followed(sbx, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    sbx.commands.run(f"rm -rf /tmp/d; mkdir /tmp/d; ln -s {victim} /tmp/d/l; echo x > /tmp/d/f")
    out = tmp_path / "out"
    sbx.files.download("/tmp/d", out)
    sbx.files.download("/tmp/d", out)
    assert victim.read_text() == "untouched"
    assert (out / "f").read_text() == "x\n"
    assert not (out / "l").exists() or os.path.islink(out / "l")
    assert sorted(os.listdir(tmp_path)) == ["out", "victim"]


def test_tb107_a_guest_that_replaces_its_agent(make):
    """Root inside kills or replaces the agent: an honest end, and others live on."""
    sandbox = make()
    other = make()
    with contextlib.suppress(SandboxException):
        sandbox.commands.run("kill -9 1; kill -9 -1; sleep 30", user="root", timeout=20)
    wait_for(lambda: not sandbox.is_running() or _answers(sandbox))
    assert other.commands.run("echo ok").stdout == "ok\n"


def _answers(sandbox):
    with contextlib.suppress(SandboxException):
        return sandbox.commands.run("echo still", timeout=10).stdout == "still\n"
    return False


def test_guest_cannot_fill_the_host_through_the_shared_directory(make):
    sandbox = make()
    sandbox.commands.run(
        "dd if=/dev/zero of=/run/tupper/flood bs=1M count=64; dd if=/dev/zero of=/proc/1/fd/1 bs=1M "
        "count=64; rm -f /run/tupper/agent.sock; ln -s /etc/passwd /run/tupper/agent.sock; true",
        user="root",
        timeout=60,
    )
    assert sandbox.commands.run("echo ok").stdout == "ok\n"


def test_sudo_without_a_password(sbx):
    result = sbx.commands.run(
        "sudo id -un; sudo -u root sh -c 'exit 6'; echo $?; echo in | sudo cat"
    )
    assert result.stdout == "root\n6\nin\n"


def test_login_shells_keep_the_path_of_the_image(sbx):
    assert "/usr/local/bin" in sbx.commands.run("echo $PATH").stdout.split(":")
