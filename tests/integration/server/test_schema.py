"""Requests made from ``/openapi.json``, good and bad: answers are as described, and no 5xx.

Machines are doubles; the server, the engine and the store are real.
"""

import asyncio
import dataclasses
import warnings

import httpx2
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from integration.engine.agent_double import AgentDouble
from integration.engine.world import InProcess, World
from tupper.images import Images, Templates
from tupper.protocol.connect import render_end, render_message
from unit.server.serving import create, new_key, serving

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import schemathesis
    from schemathesis.checks import load_all_checks
    from schemathesis.generation import GenerationMode
    from schemathesis.specs.openapi.checks import (
        content_type_conformance,
        response_schema_conformance,
        status_code_conformance,
    )

EXAMPLES = 8
CHECKS = [content_type_conformance, response_schema_conformance, status_code_conformance]
# What these say is true, and the description says so: no such backend here, no such feature.
HONEST = {501: {"unsupported"}, 503: {"backend_unavailable"}}


async def answer_honestly(self, method, target, headers, reader, writer):
    """What an agent says to the start of any command and to any file."""
    path = target.partition("?")[0]
    if path == "/process.Process/Start":
        events = [{"start": {"pid": 7}}, {"data": {"stdout": "aGkK"}}]
        events.append({"end": {"exited": True, "status": "exit status 0"}})
        stream = b"".join(render_message({"event": event}) for event in events) + render_end()
        self.reply(writer, 200, stream.decode("latin-1"))
    elif path == "/files" and method == "GET":
        self.reply(writer, 200, "text", kind="application/octet-stream")
    elif path == "/files":
        self.reply(writer, 200, [{"path": "/f", "name": "f", "type": "file"}])
    else:
        await answer(self, method, target, headers, reader, writer)


answer = AgentDouble.answer


class Known(Templates):
    """Real templates, but for what sandboxes are made from."""

    def __init__(self, images, rootfs):
        super().__init__(images, [])
        self.rootfs = rootfs

    async def ensure(self, name, **more):
        return self.rootfs if name == "base" else await super().ensure(name, **more)


class Shop(World):
    """A world whose templates are real ones."""

    def find_parts(self, paths, settings, engine_id):
        parts = super().find_parts(paths, settings, engine_id)
        images = Images(paths.data, paths.cache, id_map=None)
        return dataclasses.replace(parts, templates=Known(images, self.images.rootfs))


@pytest.mark.timeout(600)
async def test_answers_are_as_described(tmp_path, monkeypatch):
    monkeypatch.setattr(AgentDouble, "answer", answer_honestly)
    world = Shop(tmp_path, InProcess())
    async with serving(world):
        transport = httpx2.AsyncHTTPTransport(uds=str(world.paths.socket))
        async with httpx2.AsyncClient(transport=transport, base_url="http://tupper") as http:
            key = await new_key(http)
        world.engine.events.close()  # so that a stream of them ends where it begins
        headers = {"X-API-KEY": key}
        async with httpx2.AsyncClient(base_url=world.tcp, headers=headers, timeout=60) as client:
            made = await create(client, timeout=3600, tupper={"name": "there"})
            volume = (await client.post("/volumes", json={"name": "there"})).json()
            own = {"/sandboxes": made["sandboxID"], "/volume": volume["volumeID"]}
            tokens = {"/volumecontent": {"Authorization": f"Bearer {volume['token']}"}}
            asked = await asyncio.to_thread(ask_all, world.tcp, headers, own, tokens)
            assert asked > 200
            assert (await client.get("/health")).status_code == 200


def ask_all(url, headers, own, tokens):
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json", timeout=60)
    count = 0
    for found in schema.get_all_operations():
        operation = found.ok()
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            if mode is GenerationMode.NEGATIVE and not _can_be_wrong(operation):
                continue
            at = next((name for name in own if name in operation.path), "")
            sent = next((h for p, h in tokens.items() if operation.path.startswith(p)), headers)
            count += ask(operation, mode, url, sent, own.get(at))
    return count


def _can_be_wrong(operation):
    return bool(operation.body or operation.query)


def ask(operation, mode, url, headers, own):
    asked = 0

    @given(case=operation.as_strategy(generation_mode=mode), known=st.booleans())
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def once(case, known):
        nonlocal asked
        asked += 1
        if known and own and operation.method.upper() != "DELETE" and "id" in case.path_parameters:
            case.path_parameters["id"] = own
        told = case.call(base_url=url, headers=headers, timeout=60)
        if told.status_code >= 500:
            body = told.json()
            assert body["error_code"] in HONEST.get(told.status_code, ()), (case, body)
        case.validate_response(told, checks=CHECKS)

    once()
    return asked


load_all_checks()
