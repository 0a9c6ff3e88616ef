"""Terminals."""

import re
import threading

import pytest

from tupper import CommandExitException, PtySize


class Terminal:
    """A pty whose output can be waited for."""

    def __init__(self, sandbox, **options):
        self.sandbox = sandbox
        self.seen = bytearray()
        self.changed = threading.Condition()
        self.handle = sandbox.pty.create(size=PtySize(rows=24, cols=80), timeout=120, **options)
        self.thread = threading.Thread(target=self._read, args=(self.handle,))
        self.exit_code = None
        self.thread.start()

    def _read(self, handle):
        try:
            self.exit_code = handle.wait(on_pty=self._take).exit_code
        except CommandExitException as error:
            self.exit_code = error.exit_code

    def _take(self, data):
        with self.changed:
            self.seen += data
            self.changed.notify_all()

    def send(self, data):
        self.sandbox.pty.send_stdin(self.handle.pid, data)

    def expect(self, pattern, limit_s=30):
        with self.changed:
            assert self.changed.wait_for(lambda: re.search(pattern, self.seen), limit_s), bytes(
                self.seen[-500:]
            )
            found = re.search(pattern, self.seen)
            del self.seen[: found.end()]

    def end(self):
        self.thread.join(60)
        assert not self.thread.is_alive()
        return self.exit_code


def test_tb063_nothing_is_lost_at_the_end(sbx):
    terminal = Terminal(sbx)
    terminal.send(b"stty -echo; PS1=; seq 1 20000; exit 5\n")
    assert terminal.end() == 5
    assert b"".join(b"%d\r\n" % number for number in range(1, 20001)) in bytes(terminal.seen)


def test_tb063_interrupt_resize_and_end_of_file(sbx):
    terminal = Terminal(sbx)
    terminal.send(b"sh -c \"echo be''gun; exec sleep 100\"; echo not-this\n")
    terminal.expect(rb"begun")
    terminal.send(b"\x03")
    terminal.send(b"stty size; tty; echo term=$TERM\n")
    terminal.expect(rb"24 80\r\n/dev/pts/\d+\r\nterm=xterm-256color")
    sbx.pty.resize(terminal.handle.pid, PtySize(rows=40, cols=120))
    terminal.send(b"stty size\n")
    terminal.expect(rb"40 120\r\n[^\r\n]*\$ ")
    terminal.send(b"\x04")
    assert terminal.end() in (0, 130)


def test_tb063_a_viewer_may_leave_and_come_back(sbx):
    handle = sbx.pty.create(size=PtySize(rows=24, cols=80), timeout=120)
    sbx.pty.send_stdin(handle.pid, b"read gate; echo ali''ve; exit 4\n")
    handle.disconnect()
    again = sbx.pty.connect(handle.pid)
    sbx.pty.send_stdin(handle.pid, b"go\n")
    seen = []
    with pytest.raises(CommandExitException) as ended:
        again.wait(on_pty=seen.append)
    assert ended.value.exit_code == 4
    assert b"alive" in b"".join(seen)


def test_environment_directory_and_user(sbx):
    terminal = Terminal(sbx, envs={"MINE": "yes"}, cwd="/tmp", user="root")
    terminal.send(b"echo $MINE:$PWD:$(id -un)\n")
    terminal.expect(rb"yes:/tmp:root")
    assert sbx.pty.kill(terminal.handle.pid) is True
    terminal.end()
