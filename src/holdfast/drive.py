"""How the doors carry out a command, and walk a course of several steps."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from holdfast.commands import AsyncBackend, Command
from holdfast.errors import HoldfastError, OutcomeUnknown

if TYPE_CHECKING:
    import asyncio

    from holdfast.recall.following import Course

R = TypeVar("R")


class Executes(Protocol):
    """Carries out commands one by one, as a backend does; it may block."""

    def execute(self, command: Command[R]) -> R:
        """Carry out one command."""


class Index(Executes, Protocol):
    """An index outside the log's engine. Safe to use from several threads."""

    def close(self) -> None:
        """Let go of it."""


def walk(course: Course[R], backend: Executes, index: Index | None) -> R:
    """Carry out a course: commands where they belong, calls of a model here."""

    def do(step: Any) -> Any:
        if not isinstance(step, Command):
            return step.call()
        return (index_for(step, index) or backend).execute(step)

    return follow_steps(course, do)


async def walk_async(course: Course[R], backend: AsyncBackend, index: Index | None) -> R:
    """The same without holding up the event loop: what may block is done in a thread."""
    import asyncio  # noqa: PLC0415 - as below

    async def do(step: Any) -> Any:
        if not isinstance(step, Command):
            return await asyncio.to_thread(step.call)
        if (apart := index_for(step, index)) is not None:
            return await asyncio.to_thread(apart.execute, step)
        return await carry_out(step, backend)

    return await follow_steps_async(course, do)


def follow_steps(course: Generator[Any, Any, R], do: Callable[[Any], Any]) -> R:
    """Do each step of a course with the reply to the last, or throw what went wrong into it."""
    reply: Any = None
    error: HoldfastError | None = None
    while True:
        try:
            step = course.send(reply) if error is None else course.throw(error)
        except StopIteration as end:
            result: R = end.value
            return result
        reply, error = None, None
        try:
            reply = do(step)
        except HoldfastError as trouble:
            error = trouble


async def follow_steps_async(
    course: Generator[Any, Any, R], do: Callable[[Any], Awaitable[Any]]
) -> R:
    """The same, awaited."""
    reply: Any = None
    error: HoldfastError | None = None
    while True:
        try:
            step = course.send(reply) if error is None else course.throw(error)
        except StopIteration as end:
            result: R = end.value
            return result
        reply, error = None, None
        try:
            reply = await do(step)
        except HoldfastError as trouble:
            error = trouble


def index_for(step: Command[Any], index: Index | None) -> Index | None:
    """The index that a command is for, where that is not in the log's engine."""
    from holdfast.recall.commands import IndexCommand  # noqa: PLC0415 - only recall needs it

    return index if isinstance(step, IndexCommand) else None


async def carry_out(command: Command[R], backend: AsyncBackend) -> R:
    """Await a read; see a write through to its end."""
    if not command.writes:
        return await backend.execute(command)
    import asyncio  # noqa: PLC0415 - it costs half of `import holdfast`, and one door needs it

    return await to_the_end(asyncio.ensure_future(backend.execute(command)), command.operation)


async def to_the_end(write: asyncio.Future[R], operation: str) -> R:
    """Wait for a write even when cancelled; then the cancellation carries its outcome as a note.

    A write that was handed over cannot be called back, so an early return would leave the
    caller not knowing. The backend bounds how long a write may take.
    """
    import asyncio  # noqa: PLC0415 - as above

    cancelled: asyncio.CancelledError | None = None
    caller = asyncio.current_task()
    while not write.done():
        try:
            await asyncio.shield(write)
        except asyncio.CancelledError as error:
            if not write.cancelled() or (caller is not None and caller.cancelling()):
                cancelled = error
        except Exception:  # noqa: BLE001, S110 - it is the write's own, and is raised below
            pass
    if cancelled is None and write.cancelled():
        raise OutcomeUnknown(
            "somebody cancelled the write itself, not its caller. It may or may not have happened: "
            "retry it with the same key",
            operation=operation,
        )
    if cancelled is None:
        return write.result()
    cancelled.add_note(f"{operation}: {_outcome(write)}")
    raise cancelled


def _outcome(write: asyncio.Future[Any]) -> str:
    if write.cancelled():
        return "unknown: the write itself was cancelled"
    error = write.exception()
    return f"done: {write.result()}" if error is None else f"{type(error).__name__}: {error}"
