"""Commands that say whether what a template starts is ready."""

from __future__ import annotations

import shlex


class ReadyCmd:
    """A command that succeeds once a sandbox is ready.

    Args:
        cmd: for a login shell.
    """

    def __init__(self, cmd: str) -> None:
        self._cmd = cmd

    def get_cmd(self) -> str:
        """The command."""
        return self._cmd


def wait_for_port(port: int) -> ReadyCmd:
    """Ready when something listens at a TCP or UDP port. Needs ``ss`` in the template."""
    return ReadyCmd(f'[ -n "$(ss -Htuln sport = :{port})" ]')


def wait_for_url(url: str, status_code: int = 200) -> ReadyCmd:
    """Ready when a URL answers with a status. Needs ``curl`` in the template."""
    asked = f"curl -s -o /dev/null -w '%{{http_code}}' {shlex.quote(url)}"
    return ReadyCmd(f'[ "$({asked})" = {status_code} ]')


def wait_for_process(process_name: str) -> ReadyCmd:
    """Ready when a process of that name runs. Needs ``pgrep`` in the template."""
    return ReadyCmd(f"pgrep {shlex.quote(process_name)} > /dev/null")


def wait_for_file(filename: str) -> ReadyCmd:
    """Ready when a file exists."""
    return ReadyCmd(f"[ -f {shlex.quote(filename)} ]")


def wait_for_timeout(timeout: int) -> ReadyCmd:
    """Ready after some milliseconds, at least 1000."""
    return ReadyCmd(f"sleep {max(1, timeout // 1000)}")
