"""What of a message is worth remembering, and how it is said back. Pure, without a model."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Final

MEMORIES_PER_MESSAGE: Final = 8
MEMORY_CHARS: Final = range(4, 500)

_STOP: Final = "!?\u3002\uff01\uff1f"
_SENTENCE: Final = re.compile(rf"[^.{_STOP}\n]+(?:\.(?=\S)[^.{_STOP}\n]*)*[.{_STOP}]*")
_OPENING: Final = r"(?:(?:please|now|then|so|and|but|well|ok|okay|hi|hey|hello)\b[\s,]*)*"
_ASKED: Final = re.compile(
    _OPENING + r"(?:what|who|whom|whose|where|when|why|how|which|do|does|did|is|are|am|was|were|can"
    r"|could|will|would|should|shall|have|has|may|let|tell|show|remind|say|write|give|explain|make"
    r"|help|find|list|check|create|draw|draft|fix|read|look|search|translate|summari[sz]e|describe"
    r"|suggest|recommend|compare|repeat|rewrite|continue|stop|send|add|remove|delete|open|play"
    r"|imagine|pretend|think|try|use|solve|count|convert|calculate|generate|book|order|buy|call)\b",
    re.IGNORECASE,
)
# Of the person: they are what it is said of, or it is theirs. "For me" alone is a wish.
_OWN: Final = re.compile(
    r"\b(?:I|I['\u2019](?:m|ve|d|ll)|we|we['\u2019](?:re|ve|d|ll)|mine|ours|ich|wir|je|nous|yo|eu|ik)\b"
    r"|\bj['\u2019]|^(?:[A-Za-z]+\s+){0,2}(?:my|our|mein|meine|mon|ma|mes|mi|mis|meu|minha|mijn)\b"
    r"|\b(?:is|are|was|were)\s+(?:my|our)\b",
    re.IGNORECASE,
)
_ORDERED: Final = re.compile(
    r"(?:please\s+)?(?:remember|note|keep in mind|don't forget|do not forget)\b[\s,:]*(?:that\s+)?",
    re.IGNORECASE,
)
_NOTHING: Final = frozenset(
    {
        "hi", "hello", "hey", "thanks", "ok", "okay", "yes", "no", "bye", "good", "great", "nice",
        "cool", "sure", "please", "morning", "evening", "thank", "you", "so", "much", "very",
        "well", "fine", "right", "there", "all", "again", "and", "the", "it", "is", "that",
        "i", "i'm", "i'll", "i'd", "i've", "we", "we'll", "we'd", "my", "me", "am", "was", "will",
        "would", "do", "did", "don't", "didn't", "can", "can't", "not", "know", "see", "saw", "think",
        "thought", "guess", "hope", "agree", "understand", "remember", "forgot", "sorry", "mean",
        "meant", "get", "got", "love", "like", "appreciate", "bad", "here", "back", "done", "ready",
        "need", "want", "have", "a", "question", "help", "something", "said", "this", "too", "just",
    }
)  # fmt: skip
# What is wanted of the one who answers.
_WISHED: Final = re.compile(
    r"(?:I|we)(?:\s*(?:['\u2019]d|['\u2019]m|would|do|will|am|was|are|were|just|really|only)\b)*\s+"
    r"(?:(?:like|love|want|need|wish|expect|ask|asked|thank|told)\s+you\b"
    r"|(?:like|love|want|need)\s+to\s+(?:know|ask|see\s+if|hear)\b|wonder(?:ing)?\b)",
    re.IGNORECASE,
)
# It may begin only where no blank is before it: otherwise a row of blanks is read from each of them.
_AND: Final = re.compile(r"(?<!\s),?\s+and\s+(?=(?:I|I'm|I've|my|we|our)\b)")
_CJK: Final = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_CJK_ASKED: Final = re.compile(r"[吗呢么]$|什么|哪|谁|怎么|为什么|几点|多少")

_TURNED: Final = {
    "i": "you", "i'm": "you're", "i've": "you've", "i'll": "you'll", "i'd": "you'd", "me": "you",
    "my": "your", "mine": "yours", "myself": "yourself", "am": "are", "we": "you", "our": "your",
    "ours": "yours", "us": "you", "you": "I", "your": "my", "yours": "mine", "you're": "I'm",
}  # fmt: skip
_AFTER_I: Final = {"was": "were"}
_LEADING: Final = frozenset({"the", "a", "an", "this", "that", "there", "it", "he", "she", "they"})
_WORD: Final = re.compile(r"[A-Za-z]+(?:['\u2019][A-Za-z]+)?")
_ANY_WORD: Final = re.compile(r"\w+(?:['\u2019]\w+)?")


def memories_in(text: str) -> list[str]:
    """What a message tells of its author, in order; no questions, wishes or greetings, none twice."""
    found: list[str] = []
    for sentence in _SENTENCE.findall(text):
        for part in _AND.split(sentence):
            said = _statement(part.strip())
            if said and said not in found:
                found.append(said)
            if len(found) == MEMORIES_PER_MESSAGE:
                return found
    return found


def is_filler(text: str) -> bool:
    """Whether a message neither tells nor asks anything: "I see", "ok thanks"."""
    words = _words(text)
    asks = _ASKED.match(text) or text.rstrip().endswith(("?", "\uff1f"))
    return bool(words) and not asks and all(word in _NOTHING for word in words)


def _statement(sentence: str) -> str | None:
    ordered = _ORDERED.match(sentence)
    said = (sentence[ordered.end() :] if ordered else sentence).rstrip(".!\u3002\uff01 ")
    if len(said) not in MEMORY_CHARS or said.endswith(("?", "\uff1f")):
        return None
    if _CJK.search(said):
        return None if _CJK_ASKED.search(said) else said
    if all(word in _NOTHING for word in _words(said)):
        return None
    asks = _ASKED.match(said) or _WISHED.match(said)
    return said if ordered or (_OWN.search(said) and not asks) else None


def _words(text: str) -> list[str]:
    return [word.lower().replace("\u2019", "'") for word in _ANY_WORD.findall(text)]


def turned(said: str) -> str:
    """A statement said back to who made it: "My name is Li" is "your name is Li"."""
    before = ""

    def turn(match: re.Match[str]) -> str:
        nonlocal before
        word = match[0].replace("\u2019", "'")
        low = word.lower()
        new = _AFTER_I.get(low) if before in {"i", "we"} else None
        new = new or _TURNED.get(low)
        first, before = not before, low
        if new is not None:
            return new
        return word[0].lower() + word[1:] if first and low in _LEADING else word

    return _WORD.sub(turn, said.strip())


def can_turn(said: str) -> bool:
    """Whether it is said back in other words; what is not English is quoted instead."""
    return not _CJK.search(said) and said.isascii()


def day(at: datetime, now: datetime) -> str:
    """When something was said, as one says it: today, yesterday, on Tuesday, on 3 March 2026."""
    away = now.date() - at.date()
    if away <= timedelta(0):
        return "today"
    if away == timedelta(1):
        return "yesterday"
    if away < timedelta(7):
        return f"on {at:%A}"
    return f"on {at.day} {at:%B %Y}"
