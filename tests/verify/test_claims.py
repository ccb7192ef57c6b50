"""Claims are declared, with a reason for what is left out."""

from __future__ import annotations

import pytest

from holdfast import UsageError
from holdfast.verify import Claims, NotClaimed, Target, indexes
from holdfast.verify.promises import ALWAYS_JUDGED, PROMISES


def test_what_is_not_named_is_claimed():
    claims = Claims(expiring=NotClaimed("we keep everything"))
    assert set(PROMISES) - set(claims.claimed()) == {"expiring"}
    assert list(claims.not_claimed()) == [("expiring", "we keep everything")]


@pytest.mark.parametrize("promise", sorted(ALWAYS_JUDGED))
def test_the_core_cannot_be_disclaimed(promise: str):
    with pytest.raises(UsageError, match=promise):
        Claims(**{promise: NotClaimed("too hard")})


@pytest.mark.parametrize("claim", [False, None, "no"])
def test_a_promise_is_not_left_out_without_a_reason(claim: object):
    with pytest.raises(UsageError, match="NotClaimed"):
        Claims(expiring=claim)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="reason"):
        NotClaimed(" ")


def test_a_target_needs_a_way_to_open_it():
    with pytest.raises(UsageError, match="open"):
        Target(open="sqlite:///x.db")  # type: ignore[arg-type]


def test_our_stores_claim_to_recall_where_what_it_takes_is_installed(
    monkeypatch: pytest.MonkeyPatch,
):
    assert indexes.claim("sqlite:///m.db") is True
    monkeypatch.setattr(indexes, "is_installed", lambda package: package != "sqlite-vec")
    assert indexes.claim("redis://localhost") is True
    claim = indexes.claim("sqlite:///m.db")
    assert isinstance(claim, NotClaimed)
    assert "sqlite-vec is not installed: pip install 'holdfast[recall]'" in claim.reason
