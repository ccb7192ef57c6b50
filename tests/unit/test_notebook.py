"""What a notebook shows of a history and of a result: a table, in which everything is text."""

from __future__ import annotations

from html.parser import HTMLParser

from holdfast import History, Message
from holdfast.verify.judge import Verdict
from holdfast.verify.result import CheckResult, PromiseResult

EVIL = "</td><script>x</script>\"' {{ 7*7 }}"


class Tags(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert not attrs
        self.names.add(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_history_is_a_table_of_its_messages():
    shown = Tags(
        History((Message(EVIL, EVIL, seq=3), Message("user", [{"a": EVIL}])))._repr_html_()
    )
    assert shown.names == {"b", "table", "tr", "td"}
    assert shown.text.startswith("2 messages, live3" + EVIL)
    assert Tags(History(())._repr_html_()).text == "0 messages, live"


def test_a_result_is_a_table_of_its_verdicts():
    promises = {"durable": PromiseResult(Verdict.BROKEN, EVIL)}
    result = CheckResult(EVIL, 1, Verdict.BROKEN, promises, {}, {}, {}, "holdfast check x")
    shown = Tags(result._repr_html_())
    assert shown.names == {"b", "table", "tr", "td", "code"}
    assert shown.text == f"{EVIL}: brokendurablebroken{EVIL}holdfast check x"
    empty = CheckResult("t", 1, Verdict.UNKNOWN, {}, {}, {}, {})
    assert Tags(empty._repr_html_()).text == "t: unknown"
