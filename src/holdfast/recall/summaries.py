"""Summarizers: many messages to a few lines. The default takes sentences as they are."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, Protocol, runtime_checkable

from holdfast.errors import Refused, UsageError
from holdfast.model import Message
from holdfast.recall.endpoint import Endpoint
from holdfast.recall.words import terms

_SENTENCES: Final = re.compile(
    r"(?<=[.!?\u3002\uff01\uff1f\u2026])\s+|(?<=[\u3002\uff01\uff1f])|\n+"
)
_PROMPT: Final = (
    "Continue the running summary of a conversation. Keep names, numbers, dates, decisions and "
    "preferences. Answer with the new summary only, in the language of the conversation."
)


@runtime_checkable
class Summarizer(Protocol):
    """Many messages to a few lines. `name` is written beside each summary that it makes."""

    name: str

    def summarize(self, before: str, messages: Sequence[Message]) -> str:
        """The summary that was there ("" for none), continued by these messages."""


class Extractive:
    """Takes the sentences that say most, as they were said. Needs no model; equal in, equal out."""

    name = "extractive"

    def __init__(self, *, chars_max: int = 1500) -> None:
        self._chars_max = chars_max

    def summarize(self, before: str, messages: Sequence[Message]) -> str:
        """In the order in which they were said; older ones give way when they say less."""
        lines = [line for line in before.split("\n") if line]
        for message in messages:
            lines += [f"{message.role}: {part}" for part in sentences(text_of(message))]
        lines = list(dict.fromkeys(lines))
        chosen: set[int] = set()
        room = self._chars_max
        for at in self._best_first(lines):
            if len(lines[at]) < room:
                chosen.add(at)
                room -= len(lines[at]) + 1
        return "\n".join(lines[at] for at in sorted(chosen))

    def _best_first(self, lines: Sequence[str]) -> list[int]:
        words = [list(terms(line.partition(": ")[2] or line)) for line in lines]
        often = Counter(word for line in words for word in set(line))

        def worth(at: int) -> float:
            found = set(words[at])
            total = sum(1 + math.log(often[word]) for word in found)
            # A later line may correct an earlier one, hence a little more for being late.
            return total / math.sqrt(4 + len(words[at])) * (1 + 0.2 * at / len(lines))

        return sorted(range(len(lines)), key=lambda at: (-worth(at), at))


class OpenAISummarizer:
    """A server that speaks the OpenAI protocol: POST {url}/chat/completions."""

    def __init__(
        self, url: str, model: str, *, api_key: str | None = None, timeout_s: float = 60.0
    ) -> None:
        self.name = f"openai:{model}"
        self._model = model
        self._endpoint = Endpoint(url, api_key=api_key, timeout_s=timeout_s)

    def summarize(self, before: str, messages: Sequence[Message]) -> str:
        """One request."""
        said = "\n".join(f"{message.role}: {text_of(message)}" for message in messages)
        body = {
            "model": self._model,
            "messages": [
                {"role": "system", "content": _PROMPT},
                {"role": "user", "content": f"Summary so far:\n{before}\n\nThen:\n{said}"},
            ],
        }
        answer = self._endpoint.post("/chat/completions", body)
        try:
            text: Any = answer["choices"][0]["message"]["content"]
        except (KeyError, IndexError, TypeError) as error:
            text = error
        if not isinstance(text, str) or not text.strip():
            raise Refused(
                f"{self.name} answered without a summary ({text!r}). Nothing was written",
                operation="summarize",
            )
        return text.strip()


def choose(asked: object) -> Summarizer:
    """The summarizer that `connect` was given; the extractive one for None."""
    if asked is None:
        return Extractive()
    if not isinstance(asked, Summarizer):
        raise UsageError(
            "a summarizer has a name and summarize(before, messages); "
            f"{type(asked).__name__} does not. Nothing was opened"
        )
    return asked


def sentences(text: str) -> list[str]:
    """The sentences of a text, in order."""
    return [part.strip() for part in _SENTENCES.split(text) if part and part.strip()]


def text_of(message: Message) -> str:
    """What can be read of a message: its text, or that of its parts."""
    if isinstance(message.content, str):
        return message.content
    parts = [part.get("text") for part in message.content or () if isinstance(part, dict)]
    return "\n".join(part for part in parts if isinstance(part, str))
