"""Carries out a command, or a sequence of steps. The only two loops, one sync and one async."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from holdfast.commands import AsyncBackend, Command
from holdfast.errors import OutcomeUnknown

if TYPE_CHECKING:
    import asyncio

R = TypeVar("R")
S = TypeVar("S")
StepsOf = Generator[S, Any, R]
Steps = StepsOf[Any, R]
"""Yields what is to be done, is sent the reply or gets the error thrown in, and returns R."""


class Executes(Protocol):
    """Carries out commands one by one, as a backend does; it may block."""

    def execute(self, command: Command[R]) -> R:
        """Carry out one command."""


class Index(Executes, Protocol):
    """An index outside the log's engine. Safe to use from several threads."""

    def close(self) -> None:
        """Let go of it."""


def run(steps: Steps[R], do: Callable[[Any], Any]) -> R:
    """Do each step with the reply to the last; what goes wrong is thrown into the steps."""
    reply: Any = None
    error: BaseException | None = None
    while True:
        try:
            step = steps.send(reply) if error is None else steps.throw(error)
        except StopIteration as end:
            result: R = end.value
            return result
        reply, error = None, None
        try:
            reply = do(step)
        except BaseException as trouble:  # noqa: BLE001 - the steps decide
            error = trouble


async def run_async(steps: Steps[R], do: Callable[[Any], Awaitable[Any]]) -> R:
    """The same, awaited."""
    reply: Any = None
    error: BaseException | None = None
    while True:
        try:
            step = steps.send(reply) if error is None else steps.throw(error)
        except StopIteration as end:
            result: R = end.value
            return result
        reply, error = None, None
        try:
            reply = await do(step)
        except BaseException as trouble:  # noqa: BLE001 - the steps decide
            error = trouble


def run_commands(steps: Steps[R], backend: Executes, index: Index | None) -> R:
    """Steps that are commands, carried out where they belong, or calls of a model."""

    def do(step: Any) -> Any:
        if not isinstance(step, Command):
            return step.call()
        return (index_for(step, index) or backend).execute(step)

    return run(steps, do)


async def run_commands_async(steps: Steps[R], backend: AsyncBackend, index: Index | None) -> R:
    """The same without holding up the event loop: what may block is done in a thread."""
    import asyncio  # noqa: PLC0415 - as below

    async def do(step: Any) -> Any:
        if not isinstance(step, Command):
            return await asyncio.to_thread(step.call)
        if (apart := index_for(step, index)) is not None:
            return await asyncio.to_thread(apart.execute, step)
        return await execute(step, backend)

    return await run_async(steps, do)


def index_for(command: Command[Any], index: Index | None) -> Index | None:
    """The index that a command is for, where that is not in the log's engine."""
    return index if command.for_index else None


async def execute(command: Command[R], backend: AsyncBackend) -> R:
    """Await a read; see a write through to its end."""
    if not command.writes:
        return await backend.execute(command)
    import asyncio  # noqa: PLC0415 - it costs half of `import holdfast`, and one API needs it

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
            "the write itself was cancelled, not its caller. It may or may not have happened: "
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
