"""The async half of an SDK behind the sync half's face, so that one test speaks to both.

Every coroutine runs on a loop in a thread of its own; whatever it returns that has coroutines in
it is wrapped again.
"""

import asyncio
import inspect
import threading

LIMIT_S = 120
_PLAIN = (str, bytes, bytearray, int, float, bool, type(None), BaseException)


class Loop:
    """A loop in a thread."""

    def __init__(self):
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()

    def wait(self, awaitable):
        async def run():
            return await awaitable

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(LIMIT_S)

    def call(self, function, *args, **kwargs):
        """Call on the loop's thread: constructors of async things expect a running loop."""

        async def run():
            found = function(*args, **kwargs)
            return await found if inspect.isawaitable(found) else found

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(LIMIT_S)


def wrap(loop, value):
    """A value, or its face."""
    if isinstance(value, (*_PLAIN, dict)):
        return value
    if isinstance(value, list):
        return [wrap(loop, item) for item in value]
    module = type(value).__module__ or ""
    if module.split(".")[0] in ("e2b", "e2b_code_interpreter", "tupper") or inspect.isasyncgen(
        value
    ):
        names = dir(type(value))
        asynchronous = any(
            inspect.iscoroutinefunction(getattr(type(value), name, None)) for name in names
        ) or hasattr(value, "__aiter__")
        if asynchronous:
            return Face(loop, value)
    return value


class Face:
    """One async object."""

    def __init__(self, loop, inner):
        self.__dict__["inner"] = inner
        self.__dict__["loop"] = loop

    def __getattr__(self, name):
        value = getattr(self.inner, name)
        if callable(value) and not isinstance(value, type):

            def call(*args, **kwargs):
                args = [getattr(each, "inner", each) for each in args]
                return wrap(self.loop, self.loop.call(value, *args, **kwargs))

            return call
        return wrap(self.loop, value)

    def __enter__(self):
        return wrap(self.loop, self.loop.wait(self.inner.__aenter__()))

    def __exit__(self, *error):
        return self.loop.wait(self.inner.__aexit__(*error))

    def __iter__(self):
        iterator = self.inner.__aiter__()
        while True:
            try:
                yield self.loop.wait(anext(iterator))
            except StopAsyncIteration:
                return
