"""A network between machines on loopback: what is held when it is cut, each way, and what passes."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import pytest

from holdfast.errors import UsageError
from holdfast.verify.engines.topologies.network import Network

SILENT_S = 0.3
WITHIN_S = 60.0
Ends = tuple[Network, socket.socket, socket.socket]


@contextlib.contextmanager
def two_machines() -> Iterator[Ends]:
    """Two machines, and both ends of a connection that the second has opened to the first."""
    network = Network(2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(WITHIN_S)
        port = server.getsockname()[1]
        network.serve(0, port)
        place, source = (network.hosts[0], port), (network.hosts[1], 0)
        with socket.create_connection(place, WITHIN_S, source_address=source) as caller:
            first, _ = server.accept()
            with first:
                yield network, first, caller
    network.close()


@pytest.fixture
def ends() -> Iterator[Ends]:
    with two_machines() as ends:
        yield ends


def arrives(sender: socket.socket, receiver: socket.socket, within_s: float) -> bool:
    """Whether what is said now is heard in that time."""
    receiver.settimeout(within_s)
    sender.sendall(b"hello")
    try:
        return receiver.recv(5) == b"hello"
    except TimeoutError:
        return False


@pytest.mark.parametrize(
    ("way", "is_heard", "hears"),
    [("both", False, False), ("out", False, True), ("in", True, False)],
)
def test_a_machine_that_is_cut_off_is_not_heard_or_hears_nothing(
    ends: Ends, way: str, is_heard: bool, hears: bool
):
    network, first, second = ends
    assert network.cut(0, "members", way).facts["connections"] == 1
    ways = ((first, second, is_heard), (second, first, hears))
    for sender, receiver, passes in ways:
        assert arrives(sender, receiver, WITHIN_S if passes else SILENT_S) is passes
    network.heal()
    for _, receiver, passes in ways:
        receiver.settimeout(WITHIN_S)
        assert passes or receiver.recv(5) == b"hello"


def test_a_way_that_is_none_is_refused(ends: Ends):
    with pytest.raises(UsageError, match="one of both, out, in"):
        ends[0].cut(0, "members", "up")


def test_a_network_that_ends_while_it_is_cut_says_nothing(capfd: pytest.CaptureFixture[str]):
    with two_machines() as (network, first, second):
        network.cut(0, "members")
        assert not arrives(first, second, SILENT_S)
        network.close()
    assert capfd.readouterr().err == ""
