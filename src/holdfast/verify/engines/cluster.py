"""A Redis Cluster of three primaries on loopback: every slot served, no replicas."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, Self

from holdfast.errors import EngineFailed
from holdfast.verify.blocks import Block
from holdfast.verify.engines.options import EngineOptions
from holdfast.verify.engines.ports import HOST
from holdfast.verify.engines.process import START_TIMEOUT_S
from holdfast.verify.engines.redis import RedisEngine
from holdfast.verify.proof import Evidence, await_true

SLOTS: Final = 16_384
NODES: Final = 3


class RedisCluster(Block):
    """Three Redis engines that are one cluster; each of `nodes` can be killed alone.

    Redis lets no new primary take writes for its first two seconds, so a start takes as long.
    """

    provider = "local"
    data_dir = None
    """None: every node has its own."""

    def __init__(self, options: EngineOptions) -> None:
        self.kind = options.kind
        self.config = options.config
        self.nodes = [RedisEngine(replace(options, port=None)) for _ in range(NODES)]
        self._is_formed = False

    @property
    def url(self) -> str:
        """Address of the first node; a cluster client finds the others from it."""
        return self.nodes[0].url

    @property
    def version(self) -> str:
        """What the running engine says of itself."""
        return self.nodes[0].version

    def start(self) -> Self:
        """Run all nodes; returns when every one of them says that all slots are served."""
        for node in self.nodes:
            node.start()
        if not self._is_formed:
            self._form()
            self._is_formed = True
        if not await_true(self._is_ok, START_TIMEOUT_S, poll_s=0.02):
            raise EngineFailed(f"the cluster did not form; its last words:\n{self.log()}")
        return self

    def stop(self) -> None:
        """End all nodes cleanly; their data stay."""
        for node in self.nodes:
            node.stop()

    def close(self) -> None:
        """End all nodes at once and remove what they left."""
        for node in self.nodes:
            node.close()

    def log(self, lines: int = 40) -> str:
        """The last lines of every node's log."""
        return "\n".join(f"node {at}:\n{node.log(lines)}" for at, node in enumerate(self.nodes))

    def _enter(self) -> object:
        return self.start()

    def kill(self) -> Evidence:
        """SIGKILL every process of every node and wait until each is gone."""
        return _together("kill", [node.kill() for node in self.nodes])

    def pause(self) -> Evidence:
        """SIGSTOP every process of every node; proven by their state in /proc."""
        return _together("pause", [node.pause() for node in self.nodes])

    def resume(self) -> Evidence:
        """SIGCONT; proven by an answer of every node."""
        return _together("resume", [node.resume() for node in self.nodes])

    def restart(
        self,
        *,
        config: str | None = None,
        version: str | None = None,
        settings: Mapping[str, object] | None = None,
    ) -> Evidence:
        """Stop every node that runs, then start all on the same data with these instead."""
        seen = [
            node.restart(config=config, version=version, settings=settings) for node in self.nodes
        ]
        self.start()
        return _together("restart", seen)

    def _form(self) -> None:
        """Share out the slots and introduce the nodes to one another."""
        for at, node in enumerate(self.nodes):
            mine = range(SLOTS * at // NODES, SLOTS * (at + 1) // NODES)
            node.call("CLUSTER", "ADDSLOTS", *map(str, mine))
            node.call("CLUSTER", "SET-CONFIG-EPOCH", str(at + 1))
        for node in self.nodes[1:]:
            self.nodes[0].call("CLUSTER", "MEET", HOST, str(node.port))

    def _is_ok(self) -> bool:
        """Each node knows the others and their slots: `ok` alone may be said of a part of them."""
        wanted = {f"cluster_known_nodes:{NODES}", f"cluster_slots_ok:{SLOTS}", "cluster_state:ok"}
        return all(wanted <= set(node.call("CLUSTER", "INFO").split()) for node in self.nodes)


def _together(fault: str, seen: list[Evidence]) -> Evidence:
    return Evidence(
        fault, "; ".join(one.seen for one in seen), {"nodes": [one.facts for one in seen]}
    )
