"""Runs the checklist against one SDK and prints a line of JSON for each row.

A program of its own: it runs in an environment that has the published SDK and nothing of ours.
Everything it knows comes by arguments: the package (``e2b`` or ``tupper``), the half.
"""

import argparse
import contextlib
import importlib
import json
import os
import sys
import threading
import time
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import calls
import facade
import rows

ROW_LIMIT_S = 90


class World:
    """What a row gets: the package, its sandbox class with one face, and one shared sandbox."""

    def __init__(self, package, half):
        self.sdk = importlib.import_module(package)
        self.package = package
        self.is_async = half == "async"
        self.version = tuple(int(part) for part in _version(package).split(".")[:2])
        self.loop = facade.Loop() if self.is_async else None
        self.Sandbox = (
            facade.Face(self.loop, self.sdk.AsyncSandbox) if self.is_async else self.sdk.Sandbox
        )
        name = "AsyncTemplate" if self.is_async else "Template"
        self.Template = getattr(self.sdk, name, None)
        if self.is_async and self.Template is not None:
            self.Template = facade.Face(self.loop, self.Template)
        self.Interpreter = self._interpreter()
        self.code = None  # a sandbox with kernels, once a row needs one
        self.made = []
        self.sbx = None

    def face(self, kind):
        """A class of the SDK's with the sync half's face."""
        return facade.Face(self.loop, kind) if self.is_async else kind

    def _interpreter(self):
        """The sandboxes that run code; a package of its own with E2B."""
        name = {"e2b": "e2b_code_interpreter", "tupper": "tupper.code_interpreter"}[self.package]
        module = importlib.import_module(name)
        if not self.is_async:
            return module.Sandbox
        return facade.Face(self.loop, module.AsyncSandbox)

    def create(self, *args, **kwargs):
        """Make a sandbox that ends with the run."""
        kwargs.setdefault("timeout", 300)
        made = self.Sandbox.create(*args, **kwargs)
        self.made.append(made)
        return made

    def close(self):
        """End what was made."""
        for made in self.made:
            with contextlib.suppress(Exception):
                made.kill()

    def watch(self, path, **options):
        """Start a watch; returns (events so far, stop)."""
        if not self.is_async:
            handle = self.sbx.files.watch_dir(path, **options)
            return handle.get_new_events, handle.stop
        events = []
        handle = self.sbx.files.watch_dir(path, on_event=events.append, **options)

        def take():
            seen, events[:] = list(events), []
            return seen

        return take, handle.stop

    def terminal(self, size, **options):
        """Open a terminal; returns (pid, output so far as text, handle)."""
        shown = bytearray()
        if self.is_async:
            handle = self.sbx.pty.create(size, on_data=shown.extend, **options)
            return handle.pid, lambda: shown.decode("utf-8", "replace"), handle
        handle = self.sbx.pty.create(size, **options)
        return handle.pid, *self.follow(handle, shown)

    def follow(self, handle, shown=None):
        """Read a sync terminal's output in a thread."""
        shown = bytearray() if shown is None else shown

        def read():
            with contextlib.suppress(Exception):
                for _, _, data in handle:
                    shown.extend(data or b"")

        threading.Thread(target=read, daemon=True).start()
        return lambda: shown.decode("utf-8", "replace"), handle

    def attach_terminal(self, pid):
        """Connect to a terminal; returns (output so far, handle)."""
        shown = bytearray()
        if self.is_async:
            handle = self.sbx.pty.connect(pid, on_data=shown.extend)
            return lambda: shown.decode("utf-8", "replace"), handle
        return self.follow(self.sbx.pty.connect(pid), shown)

    @staticmethod
    def wait_for(condition, limit_s=20.0):
        """Poll until it holds; its value."""
        end = time.monotonic() + limit_s
        while not (found := condition()):
            if time.monotonic() > end:
                raise AssertionError("the condition did not come true")
            time.sleep(0.05)
        return found

    def raises(self, name, call, text=""):
        """Call and expect an exception of the SDK, by the name of its class or a base class."""
        try:
            found = call()
        except Exception as error:
            names = [each.__name__ for each in type(error).__mro__]
            if name not in names:
                raise
            if text not in str(error):
                raise AssertionError(f"{error!r} does not say {text!r}") from error
            return error
        raise AssertionError(f"no {name}, but {found!r}")


def _version(package):
    from importlib.metadata import version

    return version(package)


def run_row(function, world):
    """One row's outcome, as JSON values."""
    started = time.monotonic()
    found = {"row": function.__name__.removeprefix("row_"), "outcome": "passed", "detail": ""}
    try:
        function(world)
    except rows.NotHere as reason:
        found |= {"outcome": "absent", "detail": str(reason)}
    except BaseException as error:
        lines = traceback.format_exc(limit=-4).splitlines()
        found |= {"outcome": "failed", "detail": f"{error!r}\n" + "\n".join(lines[-14:])}
    return found | {"seconds": round(time.monotonic() - started, 2)}


def main():
    """Run all rows, or those named."""
    parser = argparse.ArgumentParser()
    parser.add_argument("package")
    parser.add_argument("half", choices=["sync", "async"])
    parser.add_argument("rows", nargs="*")
    options = parser.parse_args()
    watch = calls.Watch(options.package) if os.environ.get("ROWS_CALLS") else None
    if watch is not None:
        watch.begin()
    world = World(options.package, options.half)
    chosen = [f for f in rows.ROWS if not options.rows or f.__name__[4:] in options.rows]
    names = sorted(world.sdk.__all__)
    head = {"version": _version(options.package), "names": names}
    if watch is not None:
        sandbox = world.sdk.AsyncSandbox if world.is_async else world.sdk.Sandbox
        head["calls"] = calls.public_calls(world.sdk, sandbox)
    print(json.dumps(head), flush=True)
    try:
        world.sbx = world.create(
            timeout=900, metadata={"kind": "shared"}, envs={"LEVEL": "sandbox", "OTHER": "kept"}
        )
        for function in chosen:
            found = run_row(function, world)
            if watch is not None:
                found["calls"] = watch.take()
            print(json.dumps(found), flush=True)
    finally:
        world.close()


if __name__ == "__main__":
    main()
