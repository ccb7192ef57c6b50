"""What an engine is called in a repr."""

from __future__ import annotations


def describe(engine: object, *facts: str, power: bool = False) -> str:
    """What it is and how it is: nobody is asked, and its URL, which has a password, is left out."""
    names = [str(getattr(engine, name, "")) for name in ("kind", "config", "provider")]
    known = [fact for fact in (*facts, "power can be cut" if power else "") if fact]
    return f"<{' '.join(filter(None, names))}{': ' if known else ''}{', '.join(known)}>"
