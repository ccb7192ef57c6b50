"""What a sentinel says of a service: its primary, since when, and who may replace it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from holdfast.backends.redis.address import Address, Server
from holdfast.backends.redis.errors import BACKEND
from holdfast.errors import EngineUnreachable, HoldfastError, Refused

_OUT: Final = ("s_down", "o_down")
_SILENT_MS: Final = 5000
"""A replica without a connection to the sentinel is out after so long. Sooner it may be one that was
just promoted: that closes every connection to it, and is the only sign of it that most sentinels have."""
_DOWN_TIMES: Final = 10
"""A replica that has heard nothing of its primary for so many times `down-after` is never chosen."""


def understood(answers: Sequence[Any]) -> tuple[int, Server, int] | Exception:
    """Configuration epoch, primary and number of replicas that may be promoted; or what was refused."""
    for answer in answers:
        if isinstance(answer, Exception):
            return answer
    view, replicas = _pairs(answers[0]), [_pairs(one) for one in answers[1]]
    # The sentinel that leads a failover calls the old primary by the new epoch until its end, and
    # the new one a replica: that one replaces nobody any more.
    for one in [one for one in replicas if _is_promoted(one)]:
        view |= {"ip": one["ip"], "port": one["port"]}
    count = sum(_may_be_promoted(one) for one in replicas if not _is_promoted(one))
    return int(view["config-epoch"]), Server(view["ip"], int(view["port"])), count


def too_few(address: Address, answered: int, failed: HoldfastError | None) -> HoldfastError:
    """Fewer than most sentinels answered: the others may have chosen another primary."""
    if isinstance(failed, Refused):
        return failed
    return EngineUnreachable(
        f"{answered} of {len(address.seeds)} sentinels named a primary of the service "
        f"{address.service!r}, too few to know it; nothing was written{_advice(failed)} ({failed})",
        backend=BACKEND,
    )


def _advice(failed: HoldfastError | None) -> str:
    """What to do where a sentinel was reached and says no."""
    if "Authentication required" in str(failed):
        return ". If they want the password of the URL, add ?sentinel_auth=yes"
    return ". Correct the name in the URL" if "No such master" in str(failed) else ""


def _is_promoted(view: Mapping[str, str]) -> bool:
    return "promoted" in view["flags"] and view["role-reported"] == "master"


def _may_be_promoted(view: Mapping[str, str]) -> bool:
    unasked = view.get("master-host") == "?" and view.get("role-reported") == "slave"
    if unasked or any(word in view["flags"] for word in _OUT):
        return (
            False  # of one that was not asked yet a sentinel knows nothing, and does not choose it
        )
    if "disconnected" in view["flags"] and int(view["last-ok-ping-reply"]) > _SILENT_MS:
        return False
    away_ms = int(view.get("master-link-down-time", "0"))
    return away_ms <= _DOWN_TIMES * int(view.get("down-after-milliseconds", "30000"))


def _pairs(words: Sequence[bytes]) -> dict[str, str]:
    texts = [word.decode("utf-8", "replace") for word in words]
    return dict(zip(texts[::2], texts[1::2], strict=True))
