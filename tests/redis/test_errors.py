"""What the engine and the driver say, as done, not done or unknown. Pure."""

from __future__ import annotations

from typing import Any

import pytest
from redis import exceptions as theirs

from holdfast import (
    Damaged,
    EngineFull,
    EngineUnreachable,
    HoldfastError,
    OutcomeUnknown,
    Refused,
)
from holdfast.backends.redis.driver import _note_loss
from holdfast.backends.redis.errors import Lost, code_of, mapped

IN_SCRIPT = "Error running script (call to f_0a): @user_script:40: @user_script: 40: -"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (
            theirs.OutOfMemoryError("command not allowed when used memory > 'maxmemory'."),
            EngineFull,
        ),
        (theirs.ResponseError(IN_SCRIPT + "OOM command not allowed"), EngineFull),
        (theirs.ReadOnlyError("You can't write against a read only replica."), EngineUnreachable),
        (theirs.ResponseError(IN_SCRIPT + "READONLY You can't write"), EngineUnreachable),
        (theirs.BusyLoadingError("Redis is loading the dataset in memory"), EngineUnreachable),
        (theirs.ResponseError("BUSY Redis is busy running a script."), EngineUnreachable),
        (theirs.ClusterDownError("CLUSTERDOWN The cluster is down"), EngineUnreachable),
        (theirs.ResponseError("MISCONF Errors writing to the AOF file: I/O error"), Refused),
        (
            theirs.ResponseError("MISCONF Errors writing to the AOF file: No space left on device"),
            EngineFull,
        ),
        (theirs.ResponseError("NOREPLICAS Not enough good replicas to write."), Refused),
        (theirs.NoPermissionError("this user has no permissions"), Refused),
        (theirs.ResponseError("WRONGTYPE Operation against a key"), Damaged),
        (Lost("gone"), OutcomeUnknown),
        (theirs.ResponseError("something nobody has heard of"), OutcomeUnknown),
        (
            theirs.ResponseError("The user executing the script can't run this command"),
            OutcomeUnknown,
        ),
    ],
)
def test_an_error_on_a_write(error: Exception, kind: type[HoldfastError]):
    ours = mapped(error, "append", writes=True)
    assert type(ours) is kind
    assert ours.__cause__ is error
    assert (ours.operation, ours.backend) == ("append", "redis")
    said = "retry it with the same key" if kind is OutcomeUnknown else "Nothing was changed"
    assert said in str(ours) or "nothing was written" in str(ours)


def test_an_error_on_a_read_is_never_unknown():
    for error in (Lost("gone"), theirs.ResponseError("something nobody has heard of")):
        assert type(mapped(error, "history", writes=False)) is EngineUnreachable


@pytest.mark.parametrize(
    ("error", "said"),
    [(theirs.BusyLoadingError("loading"), 1), (theirs.ConnectionError("reset"), 0)],
)
def test_of_replies_that_ended_early_only_what_was_said_counts(error: Any, said: int):
    replies: list[Any] = [b"first"]
    _note_loss(replies, error, 4)
    assert len(replies) == 4
    assert replies[0] == b"first"
    assert [isinstance(reply, Lost) for reply in replies[1:]] == [not said, True, True]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (theirs.NoScriptError("No matching script."), "NOSCRIPT"),
        (theirs.ResponseError("NOSCRIPT No matching script."), "NOSCRIPT"),
        (theirs.MovedError("3999 127.0.0.1:6381"), "MOVED"),
        (theirs.ResponseError("MOVED 3999 127.0.0.1:6381"), "MOVED"),
        (theirs.AskError("3999 127.0.0.1:6381"), "ASK"),
        (theirs.ResponseError("BUSYGROUP Consumer Group name already exists"), ""),
        (ValueError("OOM"), ""),
    ],
)
def test_the_engine_s_own_code(error: Exception, code: str):
    assert code_of(error) == code
