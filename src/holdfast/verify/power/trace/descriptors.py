"""Which descriptors of a traced process lead into the directory, and what threads share."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class OpenFile:
    """An open file as the kernel has it: shared by every descriptor that was made from it."""

    inode: int
    append: bool = False
    synced: bool = False
    offset: int = 0


@dataclass(slots=True)
class DescriptorTable:
    """The descriptors of a process that lead into the directory."""

    held: dict[int, OpenFile] = field(default_factory=dict)
    closed_by_exec: set[int] = field(default_factory=set)

    def put(self, number: int, file: OpenFile, *, by_exec: bool) -> None:
        """A descriptor leads to this file from now on."""
        self.held[number] = file
        (self.closed_by_exec.add if by_exec else self.closed_by_exec.discard)(number)

    def drop(self, number: int) -> None:
        """It is closed, or leads elsewhere."""
        self.held.pop(number, None)
        self.closed_by_exec.discard(number)

    def copy(self) -> DescriptorTable:
        """For a process that does not share it."""
        return DescriptorTable(dict(self.held), set(self.closed_by_exec))


@dataclass(slots=True)
class ThreadState:
    """What a thread shares, or does not share, with others."""

    table: DescriptorTable = field(default_factory=DescriptorTable)
    cwd: list[str] = field(default_factory=lambda: [""])
