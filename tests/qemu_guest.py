"""Machines of the QEMU backend for tests, and commands inside them."""

import asyncio
import base64
import json
import shutil
import struct
import subprocess
import time
from dataclasses import replace

import httpx2

from backend_parts import host_root, make_plan, shared_data_dir
from tupper.backends.qemu import Qemu
from tupper.core.backend import BackendContext, ImageConfig, Rootfs
from tupper.core.ids import new_sandbox_id
from tupper.testing.contract import agent_answers, assert_nothing_left

_STREAM = {"Content-Type": "application/connect+json", "X-Access-Token": "secret"}
_TRIES_S = 60.0


# What all machines of a run have in common; a run inside another machine has KVM here.
SETTINGS = {"accel": "tcg"}


def make_backend(**settings):
    return Qemu(BackendContext(shared_data_dir(), "t", {**SETTINGS, **settings}))


def make_root(top):
    """A root filesystem with the host's shell, and busybox for what only root needs."""
    root = host_root(top / "root")
    shutil.copy("/bin/busybox", root / "bin" / "busybox")
    for name in ("date", "df", "id", "od", "seq", "sync"):
        if not (root / "bin" / name).exists():
            (root / "bin" / name).symlink_to("busybox")
    # Its image is kept by this name, so each has its own.
    return Rootfs(f"sha256:{new_sandbox_id()}", root, ImageConfig())


def plan_for(top, rootfs, **changes):
    sandbox_id = new_sandbox_id()
    directory = top / sandbox_id
    directory.mkdir(mode=0o700)
    return replace(make_plan(directory, sandbox_id, rootfs.path), rootfs=rootfs, **changes)


class Guest:
    """A machine that runs, for an ``async with`` block.

    Args:
        backend, plan: of it.
        snapshot: where it goes on; None for a fresh one.
    """

    def __init__(self, backend, plan, snapshot=None):
        self.backend, self.plan, self.snapshot = backend, plan, snapshot

    async def __aenter__(self):
        if self.snapshot is None:
            self.machine = await self.backend.start(self.plan)
        else:
            self.machine = await self.backend.restore(self.snapshot, self.plan)
        if not await agent_answers(self.machine.agent):
            words = self.last_words()
            await self.machine.stop(grace_s=0)
            raise AssertionError(words)
        return self

    async def __aexit__(self, *_):
        await self.machine.stop(grace_s=0)
        await assert_nothing_left(self.plan)

    def last_words(self):
        return self.machine._remains.last_words()

    async def run(self, script):
        """What a shell command says."""
        return await asyncio.to_thread(self._run, script)

    def _client(self):
        transport = httpx2.HTTPTransport(uds=self.machine.agent.path)
        return httpx2.Client(transport=transport, base_url="http://a", timeout=60)

    def post(self, path, body):
        with self._client() as client:
            headers = {"X-Access-Token": "secret"}
            return client.post(path, json=body, headers=headers)

    def _run(self, script):
        message = json.dumps({"process": {"cmd": "/bin/sh", "args": ["-c", script]}}).encode()
        body = struct.pack(">BI", 0, len(message)) + message
        with self._client() as client:
            raw = client.post("/process.Process/Start", headers=_STREAM, content=body).content
        out = b""
        while raw:
            (size,) = struct.unpack(">I", raw[1:5])
            event = json.loads(raw[5 : 5 + size]).get("event", {})
            for stream in ("stdout", "stderr"):
                out += base64.b64decode(event.get("data", {}).get(stream, ""))
            raw = raw[5 + size :]
        return out.decode()

    async def begin(self, script):
        """Run a command that does not come back."""
        with_errors = asyncio.create_task(self.run(script))
        with_errors.add_done_callback(lambda task: task.exception())

    async def save(self, into):
        """Save it as the engine does."""
        into.mkdir()
        answer = await asyncio.to_thread(self.post, "/tupper/hold", {"leaseMs": 60000})
        assert answer.status_code == 200
        try:
            return await self.machine.snapshot(into)
        finally:
            await self.machine.wake()
            assert await agent_answers(self.machine.agent)

    async def end(self):
        return await asyncio.wait_for(self.machine.wait(), 60)


async def until(condition, what):
    deadline = time.monotonic() + _TRIES_S
    while not condition():
        assert time.monotonic() < deadline, what
        await asyncio.sleep(0.01)


def mount_small(path, mib):
    path.mkdir()
    argv = ["mount", "-t", "tmpfs", "-o", f"size={mib}m", "tupper-test", str(path)]
    subprocess.run(argv, check=True)
