"""What an ack of this server survives: decided from its settings. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.model import Durability


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """The settings of a server that decide what an ack survives; and who compares vectors."""

    vector_types: str | None
    """Where the types of pgvector are, if the server does."""
    fsync: str
    synchronous_commit: str
    synchronous_standby_names: str
    full_page_writes: str
    read_only: str
    unlogged: str
    """Tables of holdfast that were made UNLOGGED: they are emptied after a crash."""
    position: str = ""
    """Where the log of the primary was: a replica that is not there yet lacks what was there before."""
    sees_standbys: str = ""
    """Whether the role may see how far standbys are: without that no ack can say REPLICA."""

    def reached(self, require: Durability) -> Durability:
        """What acks survive. `synchronous_commit` is raised by each write as far as it must be."""
        commit = self.synchronous_commit
        standbys = bool(self.synchronous_standby_names and self.sees_standbys)
        if self.unlogged or (commit == "off" and require is Durability.MEMORY):
            return Durability.MEMORY
        if self.fsync == "off":
            return Durability.PROCESS
        if standbys and (require is Durability.REPLICA or commit in {"on", "remote_apply"}):
            return Durability.REPLICA
        return Durability.DISK

    def weakness(self, require: Durability) -> str:
        """Why more than `durability` cannot be kept, and the setting to change."""
        if self.unlogged:
            return (
                f"the table(s) {self.unlogged} are UNLOGGED and emptied after a crash. "
                "Run ALTER TABLE … SET LOGGED"
            )
        if require >= Durability.DISK and self.fsync == "off":
            return (
                "the server runs with fsync=off, so a power loss can take or corrupt everything. "
                "Set fsync=on, or say require=Durability.PROCESS"
            )
        if require is Durability.REPLICA and self.synchronous_standby_names:
            return (
                "this role may not see how far the standbys are, so no write can be shown to be on "
                "one. GRANT pg_read_all_stats TO it, or say require=Durability.DISK"
            )
        if require is Durability.REPLICA:
            return (
                "synchronous_standby_names is empty, so a commit waits for no other machine. Name "
                "the standbys there, or say require=Durability.DISK"
            )
        return "synchronous_commit is off. Set it to on, or ask for less"

    def risk(self) -> str | None:
        """A page that is torn by a power cut cannot be repaired without its full image."""
        if self.full_page_writes == "off":
            return (
                "the server runs with full_page_writes=off: a power cut in the middle of writing a "
                "page can damage it beyond repair. Set full_page_writes=on, unless the file system "
                "never tears a page (ZFS)"
            )
        return None
