"""A strict stand-in for the control plane, whose sandboxes are agents run as plain processes.

It follows docs/design/interfaces.md and refuses what that does not know, so that the SDK cannot
rely on anything else. It runs in a thread of the test process and listens on a unix socket.
"""

import asyncio
import contextlib
import datetime as dt
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tupper import __version__
from tupper.core.ids import new_sandbox_id, new_token

BODY_KEYS = {
    "templateID", "timeout", "metadata", "envVars", "secure", "allow_internet_access", "network",
    "tupper",
}  # fmt: skip
OUR_KEYS = {
    "image", "backend", "minIsolation", "name", "cpus", "memoryMiB", "diskMiB", "pids", "mounts",
    "ports", "idleTimeout", "workdir", "user", "backendOptions", "ownerPid", "ownerStart",
    "allowHostPorts",
}  # fmt: skip


@dataclass
class Machine:
    sandbox_id: str
    token: str
    socket: Path
    process: subprocess.Popen
    body: dict
    started: dt.datetime
    end: dt.datetime
    end_reason: str | None = None
    ports: dict = field(default_factory=dict)
    network: dict | None = None

    def answer(self):
        ours = self.body.get("tupper", {})
        state = "ended" if self.end_reason else "running"
        return {
            "templateID": self.body["templateID"],
            "sandboxID": self.sandbox_id,
            "clientID": "local",
            "envdVersion": "0.6.13",
            "envdAccessToken": self.token,
            "domain": None,
            "startedAt": self.started.isoformat(),
            "endAt": self.end.isoformat(),
            "cpuCount": 1,
            "memoryMB": 512,
            "diskSizeMB": 1024,
            "state": state,
            "metadata": self.body.get("metadata", {}),
            "tupper": {
                "agent": {"kind": "unix", "path": str(self.socket)},
                "backend": "process",
                "isolation": "user-kernel",
                "name": ours.get("name"),
                "ports": self.ports,
                "health": "ok",
                "endReason": self.end_reason,
                "endDetail": "",
            },
        }


def problem(status, error_code, message, hint=None):
    body = {"code": status, "message": message, "error_code": error_code}
    if hint:
        body["hint"] = hint
    return JSONResponse(body, status)


class ControlPlane:
    """Start with ``with ControlPlane(agent_binary, home) as control``."""

    def __init__(self, agent, home, *, version=__version__):
        self.agent = agent
        self.home = Path(home)
        self.version = version
        self.machines = {}
        self.requests = []
        self.create_delay_s = 0.0
        self.next_problem = None
        self.runtime = self.home / "r"
        self.runtime.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.address = self.runtime / "tupper.sock"

    def __enter__(self):
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(self.address))
        self.listener.listen(128)
        config = uvicorn.Config(self._app(), log_level="critical", lifespan="off")
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(
            target=lambda: asyncio.run(self.server.serve(sockets=[self.listener]))
        )
        self.thread.start()
        end = time.monotonic() + 20
        while not self.server.started:
            assert time.monotonic() < end
            time.sleep(0.01)
        return self

    def __exit__(self, *_):
        self.server.should_exit = True
        self.server.force_exit = True
        self.thread.join(20)
        for machine in self.machines.values():
            self.end(machine, "killed")
        shutil.rmtree(self.runtime, ignore_errors=True)

    @property
    def url(self):
        return f"unix:{self.address}"

    def end(self, machine, reason):
        machine.end_reason = machine.end_reason or reason
        with contextlib.suppress(ProcessLookupError):
            os.killpg(machine.process.pid, signal.SIGCONT)
            os.killpg(machine.process.pid, signal.SIGKILL)
        machine.process.wait(10)
        machine.socket.unlink(missing_ok=True)

    def start(self, body):
        sandbox_id, token = new_sandbox_id(), new_token()
        path = self.runtime / f"{secrets.token_hex(4)}.sock"
        config = self.runtime / f"{sandbox_id}.json"
        home = self.home / sandbox_id
        home.mkdir()
        config.write_text(
            json.dumps(
                {
                    "listen": f"unix:{path}",
                    "accessToken": token,
                    "sandboxId": sandbox_id,
                    "defaultUser": "root",
                    "defaultWorkdir": str(home),
                    "envVars": body.get("envVars", {}),
                }
            )
        )
        process = subprocess.Popen(
            [str(self.agent), "serve", "--config", str(config)],
            start_new_session=True,
            stdin=subprocess.DEVNULL,
        )
        end = time.monotonic() + 20
        while True:
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as probe:
                probe.connect(str(path))
                break
            assert time.monotonic() < end, "the agent did not start in time"
            assert process.poll() is None, "the agent left"
            time.sleep(0.01)
        now = dt.datetime.now(dt.UTC)
        life = body.get("timeout")
        ending = now + dt.timedelta(seconds=300 if life is None else life)
        machine = Machine(sandbox_id, token, path, process, body, now, ending)
        self.machines[sandbox_id] = machine
        return machine

    def _find(self, request, *, ended=False):
        machine = self.machines.get(request.path_params["id"])
        if machine is None or (machine.end_reason and not ended):
            return None
        return machine

    def _app(self):
        async def note(request):
            body = await request.body()
            self.requests.append((request.method, request.url.path, body, dict(request.headers)))
            return json.loads(body) if body else {}

        def missing(request):
            name = request.path_params["id"]
            return problem(404, "sandbox_not_found", f"no sandbox {name}")

        async def create(request):
            body = await note(request)
            if self.next_problem is not None:
                answer, self.next_problem = self.next_problem, None
                return answer
            unknown = (set(body) - BODY_KEYS) | (set(body.get("tupper", {})) - OUR_KEYS)
            if unknown:
                return problem(400, "invalid_argument", f"unknown keys {sorted(unknown)}")
            machine = await asyncio.to_thread(self.start, body)
            await asyncio.sleep(self.create_delay_s)
            if await request.is_disconnected():
                self.end(machine, "start_failed")
            return JSONResponse(machine.answer(), 201)

        async def connect(request):
            body = await note(request)
            machine = self._find(request)
            if machine is None:
                return missing(request)
            if "timeout" in body:
                now = dt.datetime.now(dt.UTC)
                machine.end = max(machine.end, now + dt.timedelta(seconds=body["timeout"]))
            return JSONResponse(machine.answer())

        async def one(request):
            await note(request)
            machine = self._find(request, ended=request.query_params.get("ended") == "true")
            if machine is None:
                return missing(request)
            if request.method == "DELETE":
                await asyncio.to_thread(self.end, machine, "killed")
                return Response(status_code=204)
            return JSONResponse(machine.answer())

        async def timeout(request):
            body = await note(request)
            machine = self._find(request)
            if machine is None:
                return missing(request)
            machine.end = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=body["timeout"])
            return Response(status_code=204)

        async def listing(request):
            await note(request)
            alive = [m for m in self.machines.values() if not m.end_reason]
            alive.sort(key=lambda m: m.started, reverse=True)
            start, limit = (
                int(request.query_params.get("nextToken", 0)),
                int(request.query_params["limit"]),
            )
            headers = {"X-Next-Token": str(start + limit)} if start + limit < len(alive) else {}
            page = [m.answer() for m in alive[start : start + limit]]
            return JSONResponse(page, headers=headers)

        async def metrics(request):
            await note(request)
            sample = dict.fromkeys(
                ["cpuUsedPct", "memUsed", "memTotal", "memCache", "diskUsed", "diskTotal"], 1
            )
            now = dt.datetime.now(dt.UTC)
            sample |= {"timestamp": now.isoformat(), "timestampUnix": int(now.timestamp())}
            return JSONResponse([sample | {"cpuCount": 1}])

        async def info(request):
            await note(request)
            living = sum(not m.end_reason for m in self.machines.values())
            return JSONResponse(
                {"version": self.version, "protocol": 1, "pid": 1, "engineId": "abcde",
                 "sandboxes": living}
            )  # fmt: skip

        async def shutdown(request):
            await note(request)
            return problem(409, "conflict", "sandboxes run")

        async def ports(request):
            body = await note(request)
            machine = self._find(request)
            if machine is None:
                return missing(request)
            machine.ports[str(body["port"])] = f"127.0.0.1:{40000 + body['port'] % 1000}"
            return JSONResponse({"address": machine.ports[str(body["port"])]})

        async def links(request):
            return JSONResponse({"url": "http://127.0.0.1:40001"})

        async def network(request):
            body = await note(request)
            machine = self._find(request)
            if machine is None:
                return missing(request)
            machine.network = body
            return Response(status_code=204)

        async def idle(request):
            await note(request)
            return Response(status_code=204)

        return Starlette(
            routes=[
                Route("/v2/sandboxes", create, methods=["POST"]),
                Route("/v2/sandboxes", listing, methods=["GET"]),
                Route("/v2/sandboxes/{id}/connect", connect, methods=["POST"]),
                Route("/sandboxes/{id}", one, methods=["GET", "DELETE"]),
                Route("/sandboxes/{id}/timeout", timeout, methods=["POST"]),
                Route("/sandboxes/{id}/metrics", metrics, methods=["GET"]),
                Route("/tupper/v1/info", info),
                Route("/tupper/v1/shutdown", shutdown, methods=["POST"]),
                Route("/tupper/v1/links", links, methods=["POST"]),
                Route("/sandboxes/{id}/network", network, methods=["PUT"]),
                Route("/tupper/v1/sandboxes/{id}/ports", ports, methods=["POST"]),
                Route("/tupper/v1/sandboxes/{id}/idle-timeout", idle, methods=["POST"]),
            ]
        )
