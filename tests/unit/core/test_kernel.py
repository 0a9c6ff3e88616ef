"""Work in a thread of its own, whose caller may leave."""

import asyncio
import threading

import pytest

from tupper.core import kernel


class Blocking:
    """Work that ends when it is let go, with a result or a failure."""

    def __init__(self, result):
        self._result = result
        self._go = threading.Event()

    def __call__(self):
        assert self._go.wait(60)
        if isinstance(self._result, Exception):
            raise self._result
        return self._result

    async def leave(self, task, *, times=1):
        """Cancel who waits for it, so often, and only then let it go."""
        for _ in range(times):
            task.cancel()
            await asyncio.sleep(0)
            assert not task.done()
        self._go.set()
        with pytest.raises(asyncio.CancelledError):
            await task


@pytest.mark.parametrize("times", [1, 3])
async def test_a_result_that_nobody_waits_for_is_dropped_once(times):
    work, dropped = Blocking("thing"), []
    task = asyncio.create_task(kernel.in_thread(work, name="t", drop=dropped.append))
    await asyncio.sleep(0)
    await work.leave(task, times=times)
    assert dropped == ["thing"]
    assert "t" not in {thread.name for thread in threading.enumerate()}


async def test_a_result_that_was_there_when_its_caller_was_cancelled_is_dropped():
    dropped, over = [], threading.Event()

    def work():
        over.set()
        return "thing"

    task = asyncio.create_task(kernel.in_thread(work, name="t", drop=dropped.append))
    await asyncio.sleep(0)
    assert over.wait(60)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert dropped == ["thing"]


async def test_a_result_that_is_taken_is_not_dropped():
    dropped = []
    assert await kernel.in_thread(lambda: None, name="t", drop=dropped.append) is None
    assert await kernel.in_thread(lambda: "thing", name="t", drop=dropped.append) == "thing"
    assert not dropped


async def test_a_failure_is_told_and_is_nothing_to_drop():
    dropped, failure = [], OSError(5, "broken")
    work = Blocking(failure)
    task = asyncio.create_task(kernel.in_thread(work, name="t", drop=dropped.append))
    await asyncio.sleep(0)
    await work.leave(task, times=2)
    with pytest.raises(OSError, match="broken") as caught:
        await kernel.in_thread(work, name="t", drop=dropped.append)
    assert caught.value is failure
    assert not dropped


def start_of(thread_name, monkeypatch, instead):
    """Have ``instead`` called with the start of the threads of this name."""
    start = threading.Thread.start

    def chosen(thread):
        if thread.name == thread_name:
            instead(lambda: start(thread))
        else:
            start(thread)

    monkeypatch.setattr(threading.Thread, "start", chosen)


async def test_others_go_on_while_a_thread_is_started(monkeypatch):
    go = threading.Event()

    def slowly(start):
        assert go.wait(60)
        start()

    start_of("t", monkeypatch, slowly)
    task = asyncio.create_task(kernel.in_thread(lambda: "thing", name="t"))
    await asyncio.sleep(0)
    go.set()
    assert await task == "thing"


async def test_a_thread_that_cannot_be_started_is_an_error(monkeypatch):
    def refused(_):
        raise RuntimeError("can't start new thread")

    start_of("t", monkeypatch, refused)
    dropped = []
    with pytest.raises(RuntimeError, match="new thread"):
        await kernel.in_thread(lambda: "thing", name="t", drop=dropped.append)
    assert not dropped
