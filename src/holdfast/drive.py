"""How the async door carries out a command: a write is never left half known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.commands import AsyncBackend, Command

if TYPE_CHECKING:
    import asyncio

R = TypeVar("R")


async def carry_out(command: Command[R], backend: AsyncBackend) -> R:
    """Await a read; see a write through to its end."""
    if not command.writes:
        return await backend.execute(command)
    import asyncio  # noqa: PLC0415 - it costs half of `import holdfast`, and one door needs it

    return await _to_the_end(asyncio.ensure_future(backend.execute(command)), command.operation)


async def _to_the_end(write: asyncio.Future[R], operation: str) -> R:
    """Wait for a write even when cancelled; then the cancellation carries its outcome as a note.

    A write that was handed over cannot be called back, so an early return would leave the
    caller not knowing. The backend bounds how long a write may take.
    """
    import asyncio  # noqa: PLC0415 - as above

    cancelled: asyncio.CancelledError | None = None
    while not write.done():
        try:
            await asyncio.shield(write)
        except asyncio.CancelledError as error:
            cancelled = error
        except Exception:  # noqa: BLE001, S110 - it is the write's own, and is raised below
            pass
    if cancelled is None:
        return write.result()
    cancelled.add_note(f"{operation}: {_outcome(write)}")
    raise cancelled


def _outcome(write: asyncio.Future[Any]) -> str:
    if write.cancelled():
        return "unknown: the write itself was cancelled"
    error = write.exception()
    return f"done: {write.result()}" if error is None else f"{type(error).__name__}: {error}"
