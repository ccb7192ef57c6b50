"""Direct checks of what is found by meaning: facts go in, questions are asked, the index is lost.

See `probes` for what a finding is. Nothing here knows how a store finds things: a text has to be
found by itself and by a question in other words, or the answer has to say how far behind it is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from holdfast.verify.adapters import plain
from holdfast.verify.target import Target
from holdfast.verify.workload import summary_check
from holdfast.verify.workload.probes import LEFT_OUT, speak

FACTS: Final = (
    ("My brother Tomas drives a lorry to Lyon", "what does the sibling do for work, a truck?"),
    ("Peanuts make me ill, I am allergic to them", "which food allergy has this person?"),
    ("The cat is called Minka and is twelve years old", "what is the name of the pet?"),
    ("We are getting married in June next year", "when is the wedding?"),
    ("My passport expires on the ninth of March", "until when are travel documents valid?"),
    ("I play the violin in an orchestra on Thursdays", "which musical instrument?"),
    ("The car needs new tyres before winter", "what does the vehicle need?"),
    ("Our office moved to a building beside the station", "where is the company's workplace now?"),
)
"""What people tell, and how they ask for it later. Half of it is said, half is remembered."""
SECRETS: Final = (
    "The password of the safe is marzipan",
    "The doctor found something on the scan of my lung",
    "I owe my neighbour four hundred crowns",
    "My sister does not know that she was adopted",
)
K: Final = 2
"""A question in other words may have so many answers."""
CATCH_UP_S: Final = 10.0
"""So long an index that says that it is behind may take to come to the end."""
ASK_AGAIN_S: Final = 0.02
NO_RECALL: Final = (
    "it has no remember(scope, text) and recall(scope, query, k), so nothing can be asked: "
    "say recallable=NotClaimed(why)"
)
NO_INDEX: Final = "Target(index=Index(lose=…, count=…)) says how to take it away, and that it went"
NO_MODEL: Final = "Target(index=Index(other_model=…)) opens the store with one"


def recall(surface: plain.Client, target: Target, seed: int) -> Iterator[dict[str, Any]]:
    """Everything that was said and remembered is found; also after its index is lost."""
    if not surface.recalls:
        yield speak("recallable", "unknown", NO_RECALL, 0)
        return
    scope = f"recall-{seed}"
    fill(surface, scope, [text for text, _ in FACTS])
    later = plain.Client(target)
    try:
        wrong = [*unfound(surface, scope), *unfound(later, scope, by_meaning=False)]
    finally:
        later.close()
    kept = "what was said and remembered is found, by itself and by other words"
    yield _finding("recallable", wrong, kept)
    yield from _summarized(surface, seed)
    if target.claims.of("forgotten") is True:
        yield from _forgotten(surface, target, seed)
    surface.close()
    if not wrong:
        yield from _lost(target, scope)
        yield from _other_model(target, scope)


def _lost(target: Target, scope: str) -> Iterator[dict[str, Any]]:
    """Without its index a store answers from the log, or says that it is behind."""
    index = target.index
    if index.lose is None or index.count is None:
        yield speak("recallable", LEFT_OUT, f"a lost index ({NO_INDEX})", 0)
        return
    before = index.count(scope)
    index.lose(scope)
    left = index.count(scope)
    if left or not before:
        words = f"the index was not lost: of {before} vectors {left} are there"
        yield speak("recallable", "unknown", words, 0)
        return
    with plain.Client(target) as client:
        wrong = [
            f"the index was lost: {words}" for words in unfound(client, scope, by_meaning=False)
        ]
    found = _finding("recallable", wrong, f"so it is after the loss of an index of {before}")
    seen = f"{before} vectors of one scope were taken away, all of them"
    yield found | {"fault": "index-loss", "landed": seen}


def _other_model(target: Target, scope: str) -> Iterator[dict[str, Any]]:
    """Vectors of two models have nothing to do with each other, and never meet."""
    other = target.index.other_model
    if other is None:
        yield speak("recallable", LEFT_OUT, f"another embedding model ({NO_MODEL})", 0)
        return
    wrong: list[str] = []
    for words, opened in (
        ("with another embedding model", Target(open=other)),
        ("with the first embedding model again", target),
    ):
        with plain.Client(opened) as client:
            wrong += [f"{words}: {each}" for each in unfound(client, scope, by_meaning=False)]
    yield _finding("recallable", wrong, "so it is with another embedding model, and back")


def _summarized(surface: plain.Client, seed: int) -> Iterator[dict[str, Any]]:
    """A summary that is asked for twice is made once; the next one goes on where it ended."""
    if not surface.summarizes:
        yield speak("recallable", LEFT_OUT, f"summaries ({summary_check.NONE})", 0)
        return
    scope = f"summary-{seed}"
    texts = [text for text, _ in FACTS]
    half = len(texts) // 2
    for part in (texts[:half], texts[half:]):
        surface.append(scope, said(scope, part))
        surface.summarize(scope)
        surface.summarize(scope)
    words = summary_check.wrong(surface.summaries(scope), texts)
    kept = "every message is told by one summary"
    yield _finding("recallable", [f"summarize(): {words}"] if words else [], kept)


def _forgotten(surface: plain.Client, target: Target, seed: int) -> Iterator[dict[str, Any]]:
    """What is forgotten is found no more: here, later, by a retry, nor is anything left."""
    scope = key = f"secrets-{seed}"
    keyed = target.claims.of("exactly-once") is True and surface.takes_key
    fill(surface, scope, SECRETS, key=key if keyed else None)
    if surface.summarizes:
        surface.summarize(scope)
    surface.recall(scope, SECRETS[0], k=1)  # so that the index has them
    surface.forget(scope)
    wrong = unforgotten(surface, scope)
    if keyed:
        fill(surface, scope, SECRETS, key=key, late=True)
        wrong += [f"after a late retry: {words}" for words in unforgotten(surface, scope)]
    with plain.Client(target) as later:
        wrong += [f"for a later client: {words}" for words in unforgotten(later, scope)]
    wrong += left_behind(target, scope)
    parts = [words for words, way in _left(target) if way is not None]
    parts += ["summary"] if surface.summarizes else []
    kept = "what was forgotten is not found by meaning"
    kept += f", and no {', '.join(parts)} of it is left" if parts else ""
    yield _finding("forgotten", wrong, kept)


def _left(target: Target) -> tuple[tuple[str, Callable[[str], int] | None], ...]:
    """What can be counted past the store."""
    index = target.index
    return (("vector", index.count), ("memory", index.derived))


def left_behind(target: Target, scope: str) -> list[str]:
    """In words, what the engine still holds of a scope that was forgotten; as far as told."""
    counted = [(words, way(scope)) for words, way in _left(target) if way is not None]
    many = {"vector": "vectors", "memory": "memories and summaries"}
    return [
        f"{n} {many[words]} of what was forgotten are still stored" for words, n in counted if n
    ]


def fill(
    client: plain.Client,
    scope: str,
    texts: Iterable[str],
    *,
    key: str | None = None,
    late: bool = False,
) -> None:
    """Say every other text in the session of that name, and remember the rest beside it.

    A `late` one is a retry: what cannot be given a key is not sent again.
    """
    every = list(texts)
    client.append(scope, said(scope, every[::2]), key=key)
    keyed = key is not None and client.remembers_keys
    for number, text in enumerate(every[1::2] if keyed or not late else ()):
        client.remember(scope, text, key=f"{key}.{number}" if keyed else None)


def said(scope: str, texts: Iterable[str]) -> list[dict[str, Any]]:
    """Messages that say this."""
    return [
        {"role": "user", "content": text, "id": f"{scope}.{number}"}
        for number, text in enumerate(texts)
    ]


def unfound(client: plain.Client, scope: str, *, by_meaning: bool = True) -> list[str]:
    """In words, each of the facts that is not found by itself, or by a question about it."""
    asked = [(text, text, 1) for text, _ in FACTS]
    if by_meaning:
        asked += [(text, question, K) for text, question in FACTS]
    until_s = time.monotonic() + CATCH_UP_S  # for all of them: one that never catches up is enough
    found = [missing(client, scope, *each, until_s=until_s) for each in asked]
    return [words for words in found if words is not None]


def missing(
    client: plain.Client, scope: str, text: str, query: str, k: int, *, until_s: float | None = None
) -> str | None:
    """Why a text is not found; None where it is. A store that is behind and says so is asked again.

    As long as it catches up, however slowly: a busy machine is no finding.
    """
    until_s = time.monotonic() + CATCH_UP_S if until_s is None else until_s
    least: float = float("inf")
    while True:
        try:
            found = client.recall(scope, query, k=k)
        except Exception as error:  # noqa: BLE001 - a user's store may raise anything
            return f"recall({query!r}) raised {type(error).__name__}: {error}"
        if text in found.texts:
            return None
        if not found.behind:
            return f"{text!r} is not among the {k} best for {query!r}: {list(found.texts)}"
        if found.behind < least:
            least, until_s = found.behind, max(until_s, time.monotonic() + CATCH_UP_S)
        if time.monotonic() > until_s:
            return f"{text!r} is not found, {found.behind} records behind for {CATCH_UP_S:g} s"
        time.sleep(ASK_AGAIN_S)


def unforgotten(
    client: plain.Client, scope: str, texts: Iterable[str] = SECRETS, *, k: int = K
) -> list[str]:
    """In words, what a scope still finds or tells of these texts although it was forgotten."""
    found = [(text, _texts(client, scope, text, k)) for text in texts]
    summaries_left = client.summaries(scope) if client.summarizes else ()
    return [
        f"{text!r} was forgotten, and recall finds it" for text, seen in found if text in seen
    ] + [f"a summary of what was forgotten is there: {one.text!r}" for one in summaries_left[:1]]


def _texts(client: plain.Client, scope: str, query: str, k: int) -> tuple[str, ...]:
    """What is found; nothing where it raises, as it may for a scope that is gone."""
    try:
        return client.recall(scope, query, k=k).texts
    except Exception:  # noqa: BLE001 - a user's store may raise anything
        return ()


def _finding(promise: str, wrong: list[str], kept: str) -> dict[str, Any]:
    if not wrong:
        return speak(promise, "kept", kept, len(FACTS))
    more = f" (and {len(wrong) - 1} more)" if wrong[1:] else ""
    return speak(promise, "broken", wrong[0] + more, len(FACTS))


PROBES: Final[dict[str, Callable[[plain.Client, Target, int], Iterator[dict[str, Any]]]]] = {
    "recall": recall,
}
