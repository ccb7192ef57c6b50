"""5 fresh: a read after the ack sees the write."""

from __future__ import annotations

from tests.contract import client
from tests.contract.harness import Opener, say, texts
from tests.forks import CONTEXT


def test_another_client_sees_each_write_at_once(open_store: Opener):
    writer, reader = open_store(), open_store()
    for turn in range(50):
        writer.append("s", say(str(turn)))
        assert texts(reader.history("s"))[-1] == str(turn)
        assert reader.stat("s").last == turn + 1


def test_another_process_sees_what_was_acknowledged(opener: Opener):
    opener().append("s", [say("a"), say("b")])
    pipe, theirs = CONTEXT.Pipe(duplex=False)
    reader = CONTEXT.Process(target=client.read, args=(opener.harness.url, "s", theirs))
    reader.start()
    theirs.close()
    with pipe:
        assert pipe.poll(60)
        assert pipe.recv() == ["a", "b"]
    reader.join(60)
    assert reader.exitcode == 0


def test_another_client_sees_a_rewrite_and_a_forget_at_once(open_store: Opener):
    writer, reader = open_store(), open_store()
    writer.append("s", say("old"))
    assert texts(reader.history("s")) == ["old"]
    writer.rewrite("s", say("new"))
    assert texts(reader.history("s")) == ["new"]
    writer.forget("s")
    assert texts(reader.history("s")) == []
    assert reader.sessions() == []
