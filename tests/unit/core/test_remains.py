"""Ending a machine, as far as it needs no machine."""

import os

import pytest

from tupper.core import remains
from tupper.core.errors import MachineFailed


async def ended(answer):
    return answer


async def test_each_step_is_tried_whatever_became_of_the_others():
    tried = []

    def step(name):
        tried.append(name)
        raise OSError(5, name)

    steps = [lambda: step("first"), lambda: tried.append("second"), lambda: step("third")]
    with pytest.raises(MachineFailed, match=r"does not end; .*first; .*third"):
        await remains.remove("some", kill=ended(False), steps=steps)
    assert tried == ["first", "second", "third"]
    await remains.remove("some", kill=ended(True), steps=[lambda: None])


class Group:
    """A control group that cannot be removed."""

    def __init__(self, number, pids):
        self._error, self._pids = OSError(number, "no"), pids

    def remove(self):
        return [self._error]

    def pids(self):
        return self._pids


def test_a_group_that_is_busy_with_nothing_is_left():
    remains.remove_group(None)
    remains.remove_group(Group(16, set()))
    for number, pids in ((16, {7}), (1, set())):
        with pytest.raises(OSError, match="no"):
            remains.remove_group(Group(number, pids))


def test_the_end_of_a_log_is_read_but_nothing_else_of_that_name(tmp_path):
    log = tmp_path / "log"
    assert remains.tail(log) == ""
    log.write_bytes(b"x" * remains.LAST_WORDS_BYTES + b"end\0")
    assert remains.tail(log).endswith("xend")
    assert len(remains.tail(log)) == remains.LAST_WORDS_BYTES - 1
    (tmp_path / "link").symlink_to(log)
    os.mkfifo(tmp_path / "pipe")
    assert remains.tail(tmp_path / "link") == remains.tail(tmp_path / "pipe") == ""


def test_a_sparse_file_takes_what_is_in_it(tmp_path):
    with (tmp_path / "disk").open("wb") as file:
        file.truncate(1 << 30)
    assert remains.taken_bytes(str(tmp_path / "disk")) < 1 << 20
    assert remains.taken_bytes(str(tmp_path / "absent")) == remains.taken_bytes("") == 0
