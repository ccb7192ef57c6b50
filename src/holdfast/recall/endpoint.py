"""A server that speaks the OpenAI protocol: one JSON request, one JSON answer."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from holdfast.errors import EngineUnreachable, Refused, UsageError
from holdfast.secrets import SecretUrl

ANSWER_BYTES_MAX: Final = 256 * 1024 * 1024
_WORDS_MAX: Final = 300
_ENDPOINT: Final = re.compile(r"https?://(\[[^]@/]*\]|[^:@/]+)(:\d+)?(/|$)")


class Endpoint:
    """The key goes into a header and into no words. Every request is bounded in time."""

    def __init__(self, url: str, *, api_key: str | None, timeout_s: float) -> None:
        if not _ENDPOINT.match(url):
            raise UsageError(
                "an endpoint is an http or https URL, without a user name or password: what it asks "
                f"for goes into api_key. Not {SecretUrl(url)}"
            )
        self.url = SecretUrl(url.rstrip("/"))
        self._timeout_s = timeout_s
        self._headers = {"Content-Type": "application/json"}
        if api_key is not None:
            self._headers["Authorization"] = f"Bearer {api_key}"

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """The answer as JSON; `EngineUnreachable` if none came, `Refused` if it said no."""
        import http.client  # noqa: PLC0415 - as much as all else that a store imports
        import urllib.error  # noqa: PLC0415
        import urllib.request  # noqa: PLC0415

        request = urllib.request.Request(  # noqa: S310 - the scheme was checked above
            self.url.reveal() + path, json.dumps(body).encode(), self._headers
        )
        try:
            with urllib.request.urlopen(request, timeout=self._timeout_s) as answer:  # noqa: S310
                return json.loads(answer.read(ANSWER_BYTES_MAX))
        except urllib.error.HTTPError as error:
            words = error.read(_WORDS_MAX).decode("utf-8", "replace")
            raise Refused(
                f"{self.url} answered {error.code}: {words}. The log is complete; only this was "
                "not done",
                operation="recall",
            ) from error
        except (OSError, http.client.HTTPException) as error:
            raise EngineUnreachable(
                f"{self.url} does not answer ({error}). The log is complete; only this was not "
                "done. It goes on by itself when the server is back",
                operation="recall",
            ) from error
        except ValueError as error:
            raise Refused(
                f"{self.url} answered what is no JSON ({error}). The log is complete",
                operation="recall",
            ) from error
