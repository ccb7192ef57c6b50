"""Words, alike for asking and for finding, in any script; summaries made of sentences."""

from __future__ import annotations

from holdfast import Message
from holdfast.recall import words
from holdfast.recall.summaries import Extractive, sentences


def test_forms_of_a_word_meet_and_empty_words_go():
    for one, other in [
        ("cats", "cat"), ("stories", "story"), ("running", "runs"), ("baked", "baking"), ("Öl", "öl"),
    ]:  # fmt: skip
        assert list(words.terms(one)) == list(words.terms(other)), one
    assert list(words.terms("What is it that you would have?")) == []
    assert list(words.terms("HS-20417")) == ["hs-20417", "hs", "20417"]
    assert "10.14.3.7" in set(words.terms("at 10.14.3.7 now"))


def test_scripts_without_spaces_are_cut_into_pairs():
    assert list(words.terms("我对海鲜过敏")) == ["我对", "对海", "海鲜", "鲜过", "过敏"]
    assert list(words.terms("茶")) == ["茶"]
    assert list(words.terms("这是什么")) == []
    assert list(words.terms("喝tea吧")) == ["喝", "tea"]


def test_a_word_in_a_short_text_weighs_more_and_hashes_fit_every_engine():
    [(term, short)] = words.weights("harbour").items()
    long = words.weights("harbour " + " ".join(f"word{n}" for n in range(50)))
    assert long[term] < short
    assert all(-(2**63) <= term < 2**63 for term in long)


def test_the_rarest_words_are_looked_up_first_and_at_least_one():
    assert words.choose([5000, 3, 0, 90_000], 10_000) == [1, 0]
    assert words.choose([90_000], 10) == [0]
    assert words.choose([0, 0], 10) == []
    assert words.rarity(1, 100) > words.rarity(50, 100) > words.rarity(100, 100) > 0


def test_a_summary_takes_sentences_as_they_were_said_within_its_length():
    said = [
        Message("user", "Hello. My daughter Anna has a piano exam on Friday! Well."),
        Message("assistant", "I will remind you of the piano exam of Anna on Thursday."),
        Message("user", "好的。周五下午三点考试。"),
    ]
    summary = Extractive(chars_max=160).summarize("", said)
    assert len(summary) <= 160
    assert "My daughter Anna has a piano exam on Friday!" in summary
    assert Extractive(chars_max=160).summarize("", said) == summary
    assert (
        Extractive().summarize("user: The key is under the mat.", said).startswith("user: The key")
    )
    assert sentences("一。二！三") == ["一。", "二！", "三"]
