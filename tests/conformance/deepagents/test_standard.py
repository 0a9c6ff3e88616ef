"""The suite of LangChain for sandboxes of Deep Agents, on both halves of the adapter.

Its tests of the synchronous half are given the asyncio half through a loop in a thread, so that
all of them judge both.

With Deep Agents 0.7 seven of its tests ask for what the protocol of 0.7 forbids.
"""

import asyncio
import threading
from importlib import metadata

import pytest
from deepagents.backends.sandbox import BaseSandbox
from langchain_tests.integration_tests import SandboxIntegrationTests

from tupper import AsyncSandbox, Sandbox
from tupper.integrations.deepagents import AsyncTupperSandbox, TupperSandbox

IS_NEW = not metadata.version("deepagents").startswith("0.6.")
glob_is_absolute = pytest.mark.xfail(
    reason="expects relative paths or directories; Deep Agents 0.7 asks for absolute paths of files",
    strict=True,
)
write_replaces = pytest.mark.xfail(
    reason="expects an error; since Deep Agents 0.7 writing replaces a file", strict=True
)


class Standard(SandboxIntegrationTests):
    if IS_NEW:

        @write_replaces
        def test_write_existing_file_fails(self, sandbox_backend, sandbox_test_root):
            super().test_write_existing_file_fails(sandbox_backend, sandbox_test_root)

        @glob_is_absolute
        def test_glob(self, sandbox_backend, sandbox_test_root):
            super().test_glob(sandbox_backend, sandbox_test_root)

        @glob_is_absolute
        def test_glob_basic_pattern(self, sandbox_backend, sandbox_test_root):
            super().test_glob_basic_pattern(sandbox_backend, sandbox_test_root)

        @glob_is_absolute
        def test_glob_with_directories(self, sandbox_backend, sandbox_test_root):
            super().test_glob_with_directories(sandbox_backend, sandbox_test_root)

        @glob_is_absolute
        def test_glob_hidden_files_explicitly(self, sandbox_backend, sandbox_test_root):
            super().test_glob_hidden_files_explicitly(sandbox_backend, sandbox_test_root)

        @glob_is_absolute
        def test_glob_with_character_class(self, sandbox_backend, sandbox_test_root):
            super().test_glob_with_character_class(sandbox_backend, sandbox_test_root)

        @glob_is_absolute
        def test_glob_with_question_mark(self, sandbox_backend, sandbox_test_root):
            super().test_glob_with_question_mark(sandbox_backend, sandbox_test_root)


class TestTupperSandbox(Standard):
    @pytest.fixture(scope="class")
    def sandbox(self):
        with Sandbox.create(timeout=1800) as made:
            yield TupperSandbox(sandbox=made)


class TestAsyncTupperSandbox(Standard):
    @pytest.fixture(scope="class")
    def sandbox(self):
        with Bridge() as bridge:
            yield bridge


class Bridge(BaseSandbox):
    """The asyncio half, for callers with and without a loop of their own."""

    def __enter__(self):
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        made = self.wait(AsyncSandbox.create(timeout=1800))
        self.half = AsyncTupperSandbox(sandbox=made)
        return self

    def __exit__(self, *_):
        self.wait(self.half.sandbox.kill())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()

    def wait(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result()

    @property
    def id(self):
        return self.half.id


def bridge(name):
    """Give the class a method of both kinds that calls one of the asyncio half."""

    def call(self, *args, **kwargs):
        return self.wait(getattr(self.half, f"a{name}")(*args, **kwargs))

    async def acall(self, *args, **kwargs):
        coroutine = getattr(self.half, f"a{name}")(*args, **kwargs)
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, self.loop))

    setattr(Bridge, name, call)
    setattr(Bridge, f"a{name}", acall)


NAMES = ("execute", "ls", "read", "write", "edit", "delete", "grep", "glob")
for name in (*NAMES, "upload_files", "download_files"):
    bridge(name)
Bridge.__abstractmethods__ = frozenset()
