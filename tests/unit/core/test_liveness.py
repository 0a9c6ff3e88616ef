"""Looking at processes by what is in /proc."""

import os
from pathlib import Path

from tupper.core import liveness


def test_a_process_is_found_by_a_whole_word_of_its_environment():
    words = Path("/proc/self/environ").read_bytes().split(b"\0")
    word = os.fsdecode(max(words, key=len))
    assert os.getpid() in liveness.find_carrying(word, file="environ")
    assert os.getpid() not in liveness.find_carrying(word[:-1], file="environ")
    assert os.getpid() not in liveness.find_carrying(word, file="cmdline")


def test_seconds_of_cpu_are_those_that_the_kernel_counts_and_none_of_what_is_gone():
    ticks = os.sysconf("SC_CLK_TCK")
    used = liveness.cpu_s(os.getpid())
    assert 0 < round(used * ticks) <= round(sum(os.times()[:4]) * ticks)
    assert liveness.cpu_s(1 << 30) == 0.0


async def test_all_are_killed_until_none_is_found_but_never_ourselves(monkeypatch):
    killed, rounds = [], iter([[7, os.getpid()], [7, 8], [os.getpid()]])
    monkeypatch.setattr(os, "kill", lambda pid, number: killed.append((pid, number)))
    assert await liveness.kill_all(lambda: next(rounds), timeout_s=60)
    assert sorted(killed) == [(7, 9), (7, 9), (8, 9)]


async def test_one_that_does_not_end_is_told(monkeypatch):
    monkeypatch.setattr(os, "kill", lambda *_: None)
    assert not await liveness.kill_all(lambda: [7], timeout_s=0)
