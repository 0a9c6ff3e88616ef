"""Listing sandboxes, page by page."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Unpack

from tupper.sdk._async.control import Control
from tupper.sdk._shared.endpoint import find_target
from tupper.sdk._shared.info import parse_infos, render_query
from tupper.sdk._shared.pages import Pages
from tupper.sdk._shared.types import ApiParams, SandboxInfo, SandboxListOrder, SandboxQuery


class AsyncSandboxPaginator(Pages):
    """The sandboxes that fit a query, page by page. Made by ``Sandbox.list()``.

    Nothing is asked for before :meth:`next_items`.

    Args:
        query: which ones.
        limit: how many on a page, 1 to 100.
        next_token: where to begin.
        order: by start time; newest first if not given.
        opts: how to reach the server.
    """

    def __init__(
        self,
        query: SandboxQuery | None = None,
        limit: int | None = None,
        next_token: str | None = None,
        order: SandboxListOrder | None = None,
        **opts: Unpack[ApiParams],
    ) -> None:
        self._query = query
        super().__init__(limit, next_token)
        self._order = order
        self._opts = opts

    async def next_items(self, **opts: Unpack[ApiParams]) -> list[SandboxInfo]:
        """The next page.

        Errors:
            SandboxException: there is none.
        """
        params = {**render_query(self._query, self._order), **self._place()}
        control = Control(find_target({**self._opts, **opts}))
        try:
            answer = await control.call("GET", "/v2/sandboxes", query=params)
        finally:
            await control.close()
        self._advance(answer.headers)
        return [control.mark(info) for info in parse_infos(control.read(answer))]

    async def __aiter__(self) -> AsyncIterator[SandboxInfo]:
        """All of them, over all pages."""
        while self._has_next:
            for info in await self.next_items():
                yield info
