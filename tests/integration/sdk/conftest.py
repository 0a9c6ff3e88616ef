"""The SDK against real agents, with a stand-in for the control plane."""

import asyncio
import functools
import inspect
import threading

import pytest

from integration.sdk.control import ControlPlane
from tupper import AsyncSandbox, Sandbox
from tupper.core.errors import NotFound
from tupper.guest import find_agent_binary


@pytest.fixture(scope="session")
def agent_binary():
    try:
        return find_agent_binary()
    except NotFound as error:
        pytest.skip(f"no agent is built: {error}")


@pytest.fixture(scope="module")
def control(agent_binary, tmp_path_factory):
    with ControlPlane(agent_binary, tmp_path_factory.mktemp("c")) as plane:
        yield plane


@pytest.fixture(autouse=True)
def _environment(control, monkeypatch, tmp_path):
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")  # TB103: nothing local may go there
    monkeypatch.setenv("NO_PROXY", "10.0.0.0/8,::1")
    monkeypatch.setenv("TUPPER_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TUPPER_URL", control.url)


class Loop:
    """An event loop in a thread, for bodies that are written once for both halves."""

    def __init__(self):
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()

    def run(self, awaitable):
        async def wait():
            return await awaitable

        return asyncio.run_coroutine_threadsafe(wait(), self.loop).result(100)

    def close(self):
        async def leave():
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            await self.loop.shutdown_asyncgens()

        self.run(leave())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(20)
        self.loop.close()


class Blocking:
    """Looks like the sync object, does everything through the async one."""

    def __init__(self, target, loop):
        self._target, self._loop = target, loop

    def __getattr__(self, name):
        return self._wrap(getattr(self._target, name))

    def _wrap(self, value):
        if inspect.iscoroutinefunction(value) or (callable(value) and not isinstance(value, type)):

            @functools.wraps(value)
            def call(*args, **kwargs):
                result = value(*args, **kwargs)
                if inspect.isawaitable(result):
                    result = self._loop.run(result)
                return self._wrap(result)

            return call
        if (
            type(value).__module__.startswith("tupper.sdk._")
            and "types" not in type(value).__module__
        ):
            return value if isinstance(value, Exception) else Blocking(value, self._loop)
        return value

    def __iter__(self):
        while True:
            try:
                yield self._loop.run(anext(self._target))
            except StopAsyncIteration:
                return


@pytest.fixture
def loop():
    made = Loop()
    yield made
    made.close()


@pytest.fixture(params=["sync", "async"])
def make(request, control):
    """Create sandboxes of either half; they end with the test."""
    made = []
    loop = request.getfixturevalue("loop") if request.param == "async" else None

    def create(**options):
        if loop is None:
            sandbox = Sandbox.create(**options)
        else:
            sandbox = Blocking(loop.run(AsyncSandbox.create(**options)), loop)
        made.append(sandbox)
        return sandbox

    yield create
    for sandbox in made:
        sandbox.kill()


@pytest.fixture
def sbx(make):
    sandbox = make()
    yield sandbox
    if sandbox.is_running():
        assert sandbox.commands.run("echo ok", timeout=30).stdout == "ok\n"
