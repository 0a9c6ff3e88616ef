"""``/openapi.json`` and ``/docs``: the description of the API, for programs and for people."""

from __future__ import annotations

import functools

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from tupper.server.http import answer, guarded

OPEN = ("/openapi.json", "/docs")
"""Paths that ask for no key."""


def routes() -> list[Route]:
    """The routes."""
    return [
        Route("/openapi.json", guarded(_document), methods=["GET"]),
        Route("/docs", guarded(_page), methods=["GET"]),
    ]


@functools.cache
def _rendered() -> tuple[dict[str, object], str]:
    # Imported when somebody asks: a background process that nobody asks stays small.
    from tupper.server.openapi import render_document  # noqa: PLC0415
    from tupper.server.openapi.page import render_page  # noqa: PLC0415

    return render_document(), render_page()


async def _document(request: Request) -> Response:
    del request
    return answer(_rendered()[0], headers={"Access-Control-Allow-Origin": "*"})


async def _page(request: Request) -> Response:
    del request
    policy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
    return HTMLResponse(_rendered()[1], headers={"Content-Security-Policy": policy})
