"""What a service knows of its supervisor: an address and a secret. See `chaos`."""

from __future__ import annotations

import os
import re
from typing import Any, Final

import httpx

from holdfast.errors import EngineUnreachable, UsageError

CONTROL: Final = "HOLDFAST_CHAOS_URL"
SECRET: Final = "HOLDFAST_CHAOS_SECRET"  # noqa: S105 - the name of a variable
_NAME: Final = re.compile(r"[a-z-]{1,32}\Z")


class Control:
    """Asks the supervisor for faults."""

    def __init__(self, url: str, secret: str) -> None:
        self._url = url
        self._headers = {"Authorization": f"Bearer {secret}"}

    @classmethod
    def here(cls) -> Control | None:
        """That of the supervisor that started this process; None without one."""
        url, secret = os.environ.get(CONTROL), os.environ.get(SECRET)
        return cls(url, secret) if url and secret else None

    async def faults_json(self) -> dict[str, Any]:
        """What can be done, and what was."""
        return await self._ask("GET", "/")

    async def cause(self, fault: str, key: str) -> dict[str, Any]:
        """Begin it; it may end this very process."""
        if not _NAME.match(fault):
            raise UsageError("there is no such fault here")
        return await self._ask("POST", f"/{fault}/{key}")

    async def _ask(self, method: str, path: str) -> dict[str, Any]:
        try:
            async with httpx.AsyncClient(headers=self._headers, timeout=10) as http:
                answer = await http.request(method, self._url + path)
        except httpx.HTTPError as error:
            raise EngineUnreachable("the supervisor does not answer") from error
        if answer.status_code >= httpx.codes.BAD_REQUEST:
            raise UsageError("there is no such fault here")
        payload: dict[str, Any] = answer.json()
        return payload
