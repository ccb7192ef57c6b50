"""recallable: whatever is in the log can be found by meaning."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

from holdfast.verify.adapters.plain import Client
from holdfast.verify.suite.crashing import crashes
from holdfast.verify.suite.judging import broken, cannot, hold, ids, killable, new_session
from holdfast.verify.suite.peers import listen, peers
from holdfast.verify.suite.record import Recorded, turn
from holdfast.verify.target import Target
from holdfast.verify.workload import memories, summary_check

MANY: Final = 120
"""More than an index takes in at once."""


def test_what_was_said_and_remembered_is_found_by_itself(target: Target) -> None:
    """Each of the texts, by their writers and by a client that opens later."""
    scope = _filled(target)
    for words in ("by a client that opened later", "by one after that"):
        with recalling(target) as client:
            _none(memories.unfound(client, scope, by_meaning=False), words)


def test_what_was_said_and_remembered_is_found_by_other_words(target: Target) -> None:
    """By a question that shares next to no word with it."""
    scope = _filled(target)
    with recalling(target) as client:
        _none(memories.unfound(client, scope))


def test_what_was_written_a_moment_ago_is_found_or_the_answer_says_it_is_behind(
    target: Target,
) -> None:
    """Many at once, and a question at once: never a short answer that looks whole."""
    scope = new_session("recall")
    said = [turn(name, f"{name}: a note of no importance") for name in ids("note", MANY)]
    with recalling(target) as client:
        client.append(scope, said)
        for message in (said[0], said[-1], said[MANY // 2]):
            text = str(message["content"])
            found = memories.missing(client, scope, text, text, memories.K)
            hold("recallable", found is None, str(found))


def test_an_index_catches_up_after_sigkill_of_the_writer(target: Target) -> None:
    """A process writes, recalls, writes, and dies; every acknowledged message is found."""
    scope = new_session("recall")

    def work(client: Recorded) -> None:
        for number in range(1_000_000):
            client.append(scope, [f"item.{number}"])
            if number % 7 == 0:
                client.recall(scope, "item.0")

    with peers(target, [work]) as clients:
        listen(clients, lambda: clients[0].acks() > 20)  # noqa: PLR2004 - some rounds of both
        if not clients[0].kill().landed:
            cannot("the writer was gone before it could be killed")
        wrote = clients[0].acknowledged()
    with recalling(target) as client:
        found = [memories.missing(client, scope, name, name, memories.K) for name in wrote]
    _none([words for words in found if words is not None], f"after SIGKILL, of {len(wrote)}")


def test_what_is_in_the_log_is_found_after_a_restart_of_the_engine(target: Target) -> None:
    """Whether the index was in memory, in a file, or on its way from one to the other."""
    engine = killable(target)
    scope = _filled(target)
    with recalling(target) as client:
        _none(memories.unfound(client, scope, by_meaning=False))
    engine.kill()
    engine.start()
    with recalling(target) as client:
        _none(memories.unfound(client, scope, by_meaning=False), "after a kill of the engine")


def test_a_lost_index_comes_back_from_the_log(target: Target) -> None:
    """The index is derived: without it nothing is lost."""
    index = target.index
    if index.lose is None or index.count is None:
        cannot(memories.NO_INDEX)
    scope = _filled(target)
    with recalling(target) as client:
        _none(memories.unfound(client, scope, by_meaning=False))
    before = index.count(scope)
    index.lose(scope)
    if not before or index.count(scope):
        cannot(f"the index was not lost: it had {before} vectors and has {index.count(scope)}")
    with recalling(target) as client:
        _none(memories.unfound(client, scope, by_meaning=False), "after its index was lost")


def test_another_embedding_model_does_not_mix_with_the_first(target: Target) -> None:
    """Vectors of two models have nothing to do with each other: it is rebuilt."""
    other = target.index.other_model
    if other is None:
        cannot(memories.NO_MODEL)
    scope = _filled(target)
    for words, opened in (
        ("with the first model", target),
        ("with another model", Target(open=other, claims=target.claims)),
        ("with the first model again", target),
    ):
        with recalling(opened) as client:
            _none(memories.unfound(client, scope, by_meaning=False), words)


def test_every_message_is_told_by_one_summary(target: Target) -> None:
    """However often a summary is asked for, by whom, and whatever was said meanwhile."""
    session = new_session("summary")
    texts = [text for text, _ in memories.FACTS]
    for begin in range(0, len(texts), 3):
        for _ in range(2):
            with _summarizing(target) as client:
                if len(client.history(session).messages) == begin:
                    client.append(session, memories.said(session, texts[begin : begin + 3]))
                client.summarize(session)
                _hold_summaries(client, session, texts[: begin + 3])


def test_a_crash_inside_a_summary_neither_loses_nor_doubles(target: Target) -> None:
    """SIGKILL between a turn and its summary, at one line after another; then it is done again."""
    with _summarizing(target):
        pass
    turns = ["The first turn was said", "The second turn was said"]

    def say(client: Client, session: str) -> None:
        client.append(session, memories.said(session, turns[:1]))
        client.summarize(session)
        client.append(session, memories.said(session, turns[1:]))

    struck = crashes(target, say, lambda client, session: client.summarize(session))
    with _summarizing(target) as client:
        for session in struck:
            client.summarize(session)
            _hold_summaries(client, session, turns, f"after SIGKILL inside it, {len(struck)} times")


@contextlib.contextmanager
def _summarizing(target: Target) -> Iterator[Client]:
    with recalling(target) as client:
        if not client.summarizes:
            cannot(summary_check.NONE)
        yield client


def _hold_summaries(client: Client, session: str, texts: list[str], when: str = "at once") -> None:
    words = summary_check.wrong(client.summaries(session), texts)
    hold("recallable", not words, f"{when}: {words}")


@contextlib.contextmanager
def recalling(target: Target) -> Iterator[Client]:
    """A client that can be asked to recall; a store that claims it and cannot has broken it."""
    with Client(target) as client:
        if not client.recalls:
            broken("recallable", memories.NO_RECALL)
        yield client


def _filled(target: Target) -> str:
    """A scope in which the facts were said and remembered."""
    scope = new_session("recall")
    with recalling(target) as client:
        memories.fill(client, scope, [text for text, _ in memories.FACTS])
    return scope


def _none(wrong: list[str], when: str = "at once") -> None:
    more = f" (and {len(wrong) - 1} more)" if wrong[1:] else ""
    hold("recallable", not wrong, f"{when}: {''.join(wrong[:1])}{more}")
