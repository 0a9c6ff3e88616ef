"""``shell`` and ``exec -t`` in a real terminal: keys, size, and the terminal given back."""

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time

import pytest

LIMIT_S = 60


class Terminal:
    """A terminal with a program in it."""

    def __init__(self, *arguments, rows=30, cols=90):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            try:
                os.execv(sys.executable, [sys.executable, "-m", "tupper", *arguments])
            finally:
                os._exit(99)
        self.resize(rows, cols)
        self.seen = b""

    def resize(self, rows, cols):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def type(self, keys):
        os.write(self.fd, keys)

    def wait_for(self, pattern):
        end = time.monotonic() + LIMIT_S
        while not (match := re.search(pattern, self.seen)):
            ready, _, _ = select.select([self.fd], [], [], max(0, end - time.monotonic()))
            assert ready, f"{pattern!r} did not come; seen: {self.seen[-500:]!r}"
            try:
                chunk = os.read(self.fd, 65536)
            except OSError:
                chunk = b""
            assert chunk, f"ended before {pattern!r}; seen: {self.seen[-500:]!r}"
            self.seen += chunk
        self.seen = self.seen[match.end() :]
        return match

    def end(self):
        end = time.monotonic() + LIMIT_S
        while time.monotonic() < end:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.pid = 0
                return os.waitstatus_to_exitcode(status)
            if select.select([self.fd], [], [], 0.05)[0]:
                with contextlib.suppress(OSError):
                    os.read(self.fd, 65536)
        raise AssertionError("the shell did not end")

    def close(self):
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.fd)


@pytest.fixture
def terminal():
    opened = []

    def start(*arguments, **size):
        opened.append(Terminal(*arguments, **size))
        return opened[-1]

    yield start
    for made in opened:
        made.close()


def test_a_shell_has_the_size_of_the_window_and_follows_it(terminal, box):
    shell = terminal("shell", box, rows=31, cols=91)
    shell.wait_for(rb"[$#] ")
    shell.type(b"stty size\r")
    shell.wait_for(rb"\b31 91\b")
    shell.resize(41, 101)
    for _ in range(100):
        shell.type(b"stty size\r")
        if shell.wait_for(rb"\b(31 91|41 101)\b")[1] == b"41 101":
            break
    else:
        pytest.fail("the size did not follow")
    shell.type(b"exit 5\r")
    assert shell.end() == 5


def test_ctrl_c_goes_inside_and_the_shell_lives_on(terminal, box):
    shell = terminal("shell", box)
    shell.wait_for(rb"[$#] ")
    # Said by the one who is to get the signal, who is in the foreground by then.
    shell.type(b"sh -c \"echo st''arted; exec sleep 600\"\r")
    shell.wait_for(rb"started")
    shell.type(b"\x03")
    shell.wait_for(rb"[$#] ")
    shell.type(b"echo al''ive\r")
    shell.wait_for(rb"alive")
    shell.wait_for(rb"[$#] ")  # only now the shell takes keys one by one
    shell.type(b"\x04")
    shell.end()


def test_the_terminal_is_given_back_as_it_was(terminal, box):
    shell = terminal("shell", box)
    shell.wait_for(rb"[$#] ")
    raw = termios.tcgetattr(shell.fd)
    assert not raw[3] & termios.ICANON
    shell.type(b"exit\r")
    shell.end()
    try:
        after = termios.tcgetattr(shell.fd)
    except termios.error:
        pytest.skip("this kernel forgets the mode of a terminal without a program")
    assert after[3] & termios.ICANON
    assert after[3] & termios.ECHO


def test_the_terminal_is_given_back_after_a_signal(terminal, box):
    shell = terminal("shell", box)
    shell.wait_for(rb"[$#] ")
    os.kill(shell.pid, signal.SIGTERM)
    assert shell.end() == 143
    assert termios.tcgetattr(shell.fd)[3] & termios.ICANON


def test_exec_with_a_terminal(terminal, box):
    program = terminal(
        "exec",
        "-it",
        box,
        "--",
        "python3",
        "-c",
        "import os; print(os.isatty(0), os.get_terminal_size())",
    )
    program.wait_for(rb"True os.terminal_size\(columns=90, lines=30\)")
    assert program.end() == 0


def test_no_color_and_a_plain_list(terminal, box):
    listing = terminal("list")
    listing.wait_for(rb"ID ")
    assert listing.end() == 0
