"""What a `with` block of ours does: begin on the way in, close on the way out."""

from __future__ import annotations

from types import TracebackType
from typing import Self


class Block:
    """Begins on the way in; is closed on the way out, and when it could not begin."""

    def _enter(self) -> object:
        """On the way in: start an engine, apply a fault. By itself nothing."""

    def close(self) -> None:
        """On the way out. Closing twice does nothing."""

    def __enter__(self) -> Self:
        try:
            self._enter()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
