"""Real-world faults as tests: one sandbox a module, and it must still answer after each."""

import asyncio
import hashlib
import os
import threading

import pytest

from tupper import AsyncSandbox, Sandbox


@pytest.fixture(scope="module")
def shared():
    with Sandbox.create(timeout=3600) as sandbox:
        yield sandbox


@pytest.fixture
def sbx(shared):
    """A sandbox that other tests use too: every test leaves it answering."""
    yield shared
    assert shared.commands.run("echo ok", timeout=30).stdout == "ok\n"


@pytest.fixture
def make():
    """Create sandboxes that end with the test."""
    made = []

    def create(**options):
        options.setdefault("timeout", 900)
        sandbox = Sandbox.create(**options)
        made.append(sandbox)
        return sandbox

    yield create
    for sandbox in made:
        sandbox.kill()


@pytest.fixture
def sha():
    return lambda data: hashlib.sha256(data).hexdigest()


@pytest.fixture
def noise():
    """Bytes that do not compress."""
    return os.urandom


@pytest.fixture
def in_async():
    """Run a coroutine function with a connected AsyncSandbox."""

    def run(sandbox, body):
        async def main():
            other = await AsyncSandbox.connect(sandbox.sandbox_id)
            return await body(other)

        return asyncio.run(main())

    return run


@pytest.fixture
def threads():
    """Run functions at once; return their results or raise the first error."""

    def run(functions):
        results = [None] * len(functions)
        errors = []

        def call(index, function):
            try:
                results[index] = function()
            except BaseException as error:
                errors.append(error)

        workers = [
            threading.Thread(target=call, args=(index, function))
            for index, function in enumerate(functions)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(120)
        assert not any(worker.is_alive() for worker in workers)
        if errors:
            raise errors[0]
        return results

    return run
