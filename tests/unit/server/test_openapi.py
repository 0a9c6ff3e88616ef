"""The description of the API says all that there is, and nothing else."""

import re

import httpx2

from tupper.server.openapi import OPERATIONS

# E2B's clients of before 2.0; answered with 501.
REFUSED = {
    (method, path)
    for method in ("POST", "PATCH")
    for path in (
        "/templates", "/v2/templates", "/templates/{id}", "/templates/{id}/builds/{build}",
    )
}  # fmt: skip


def test_every_route_is_described_and_nothing_else(world):
    there = {
        (method.lower(), re.sub(r":path}", "}", route.path))
        for route in world.app.routes
        for method in route.methods - {"HEAD"}
        if (method, route.path) not in REFUSED
    }
    assert there == {(each.method, each.path) for each in OPERATIONS}


async def test_both_are_there_without_a_key_and_need_nothing_from_elsewhere(world):
    async with httpx2.AsyncClient(base_url=world.tcp, timeout=10) as stranger:
        document = (await stranger.get("/openapi.json")).json()
        page = await stranger.get("/docs")
    assert document["openapi"] == "3.1.0"
    assert "/sandboxes/{id}/commands" in document["paths"]
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "<script" not in page.text
    assert not re.search(r"(?:src|href)='?\"?(?:https?:)?//", page.text)
    for path in document["paths"]:
        assert path in page.text
