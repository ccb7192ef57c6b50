"""5 fresh: a read after the ack sees the write."""

from __future__ import annotations

import subprocess
import sys

from tests.contract.harness import Opener, say, texts

READ = "import holdfast, sys; print(len(holdfast.connect(sys.argv[1]).history('s')))"


def test_another_client_sees_each_write_at_once(open_store: Opener):
    writer, reader = open_store(), open_store()
    for turn in range(50):
        writer.append("s", say(str(turn)))
        assert texts(reader.history("s"))[-1] == str(turn)
        assert reader.stat("s").last == turn + 1


def test_another_process_sees_what_was_acknowledged(opener: Opener):
    opener().append("s", [say("a"), say("b")])
    read = [sys.executable, "-c", READ, opener.harness.url]
    assert subprocess.run(read, capture_output=True, check=True).stdout == b"2\n"


def test_another_client_sees_a_rewrite_and_a_forget_at_once(open_store: Opener):
    writer, reader = open_store(), open_store()
    writer.append("s", say("old"))
    assert texts(reader.history("s")) == ["old"]
    writer.rewrite("s", say("new"))
    assert texts(reader.history("s")) == ["new"]
    writer.forget("s")
    assert texts(reader.history("s")) == []
    assert reader.sessions() == []
