"""What is noticed in a message, and how it is said back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from holdfast.chat.companion import Remembered, reply
from holdfast.chat.noticing import day, memories_in, turned
from holdfast.chat.request_guard import Rate

NOW = datetime(2026, 11, 13, 12, tzinfo=UTC)  # a Friday


@pytest.mark.parametrize(
    ("text", "memories"),
    [
        ("My name is Xiao Li.", ["My name is Xiao Li"]),
        ("Hi! I live in Porto. Where do I live?", ["I live in Porto"]),
        ("I am Li and I have a cat", ["I am Li", "I have a cat"]),
        ("please remember: tea at 4.30pm", ["tea at 4.30pm"]),
        ("我叫小李。我叫什么名字？", ["我叫小李"]),
        ("I like tea. I like tea.", ["I like tea"]),
        (
            "Yesterday I moved to Porto; the key is mine.",
            ["Yesterday I moved to Porto; the key is mine"],
        ),
        ("The red bike is my brother's", ["The red bike is my brother's"]),
        ("Ich heiße Li", ["Ich heiße Li"]),
        ("Remember that the door code is 4711", ["the door code is 4711"]),
        ("Please write me a haiku", []),
        ("Hey, please translate what I wrote", []),
        ("Fix my code and make it fast", []),
        ("A haiku about my cat for me", []),
        ("The capital of France is Paris", []),
        ("What is my name", []),
        ("ok thanks", []),
        *(
            (filler, [])
            for filler in (
                "I will remember that",
                "I'll remember that.",
                "I see",
                "I don't know",
                "I’m not sure",
                "I think so",
                "I am sorry",
                "I got it, thanks",
                "My bad",
                "I am here",
                "I'd like you to be brief",
                "I want you to write a haiku",
                "I have a question",
                "I was wondering if you could help",
                "I'm just wondering",
                "I really want to know why",
                "I would like to know the time in Paris",
                "I wonder why the sky is blue",
                "I need help",
                "I love you",
            )
        ),
        ("I see my doctor on Mondays", ["I see my doctor on Mondays"]),
        ("I know Python", ["I know Python"]),
        ("I am 42", ["I am 42"]),
        ("I love Осло", ["I love Осло"]),
        ("Remember: 4711", ["4711"]),
        ("I'm sorry to say my dog died", ["I'm sorry to say my dog died"]),
        ("I would like to become a pilot", ["I would like to become a pilot"]),
        ("I am back in Berlin", ["I am back in Berlin"]),
        ("hello there!", []),
        ("", []),
    ],
)
def test_statements_are_noticed_and_questions_are_not(text, memories):
    assert memories_in(text) == memories


@pytest.mark.parametrize(
    ("said", "back"),
    [
        ("My name is Xiao Li", "your name is Xiao Li"),
        ("I was born when I'm told I was", "you were born when you're told you were"),
        ("The cat is mine", "the cat is yours"),
        ("you gave me a book", "I gave you a book"),
    ],
)
def test_it_is_said_back_to_who_said_it(said, back):
    assert turned(said) == back


@pytest.mark.parametrize(
    ("days", "words"),
    [
        (0, "today"),
        (1, "yesterday"),
        (3, "on Tuesday"),
        (6, "on Saturday"),
        (7, "on 6 November 2026"),
        (-1, "today"),  # a clock that went back
    ],
)
def test_a_day_is_named_as_one_says_it(days, words):
    assert day(NOW - timedelta(days=days), NOW) == words


def test_an_answer_names_what_was_told_and_when():
    tuesday = NOW - timedelta(days=3)
    told = [Remembered("My name is Xiao Li", tuesday, 0.6), Remembered("I like tea", tuesday, 0.2)]
    assert reply("What is my name?", told, NOW) == (
        "You told me on Tuesday that your name is Xiao Li."
    )
    assert reply("我叫什么名字？", [Remembered("我叫小李", tuesday, 0.6)], NOW) == (
        "You told me on Tuesday: “我叫小李”."
    )


def test_an_answer_claims_no_more_than_is_known():
    assert reply("What is my name?", [], NOW).startswith("I do not know that yet")
    assert reply("Who?", [Remembered("I like tea", NOW, 0.1)], NOW).startswith(
        "I do not know that yet"
    )
    assert "not sure" in reply("Who?", [Remembered("I like tea", NOW, 0.3)], NOW)
    assert "7 newer" in reply("Who?", [], NOW, behind=7)


def test_a_rate_allows_a_burst_and_then_so_many_per_second():
    now = 0.0
    rate = Rate(2.0, 3, clock=lambda: now)
    assert [rate.wait_s("a") for _ in range(4)] == [0, 0, 0, 0.5]
    assert rate.wait_s("b") == 0
    now = 0.5
    assert [rate.wait_s("a") for _ in range(2)] == [0, 0.5]


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("I see", "All right."),
        ("ok thanks", "All right."),
        ("Do I like it", "I do not know that yet"),
    ],
)
def test_what_tells_and_asks_nothing_is_not_answered_as_a_question(text, answer):
    assert reply(text, [], NOW).startswith(answer)
