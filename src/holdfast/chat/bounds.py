"""Every bound of the chat service, each with its unit in its name."""

from __future__ import annotations

from typing import Final

MESSAGE_CHARS_MAX: Final = 16_000
"""One message that a person sends."""

BODY_BYTES_MAX: Final = 128 * 1024
"""The body of any request but a load."""

LOAD_BYTES_MAX: Final = 16 * 1024 * 1024
"""An exported file that is loaded."""

LOAD_PIECE_MESSAGES: Final = 200
"""Messages that a load appends at a time, so that others come in between."""

LOAD_LINE_VALUES_MAX: Final = 300_000
"""Signs between values in one line of it; the keys of the longest conversation that fits have fewer."""

LOAD_MEMORIES_MAX: Final = 10_000
"""Memories in a file that is loaded."""

MODEL_LINE_BYTES_MAX: Final = 1024 * 1024
"""One line of what a model streams."""

PAGE_MESSAGES: Final = 200
"""Messages that an opened conversation shows at first; more by scrolling back."""

SESSIONS_MAX: Final = 200
"""Conversations that are listed."""

MEMORIES_SHOWN: Final = 500
"""The newest memories that the panel lists; search finds all."""

RECALLED: Final = 5
"""Memories that an answer may use, and that a search shows at least."""

QUERY_CHARS_MAX: Final = 1000
"""What is looked for in memory: more of a long message would cost time and find no more."""

LOOKS_AT_ONCE: Final = 1
"""Looks into memory that the companion makes at the same time."""

CONTEXT_TOKENS: Final = 6_000
"""The prompt of a model."""

ANSWER_CHARS_MAX: Final = 200_000
"""What is taken from a model for one answer."""

MODEL_TIMEOUT_S: Final = 120.0
TOOL_ROUNDS_MAX: Final = 4
"""How often a model may look into memory before it has to answer."""

RATE_PER_S: Final = 2.0
"""Requests that write, per person, in the long run."""

RATE_BURST: Final = 30
"""The same, at once."""

PEOPLE_PER_ADDRESS: Final = 4
"""All people at one address together may write as much as so many."""

READS_PER_WRITE: Final = 5
"""Requests of any sort that an address may make for each that writes."""

PLACES_PER_ADDRESS: Final = 4
"""Requests of one address that are worked on at the same time; its others wait for them."""

REQUESTS_MAX: Final = 500
"""Requests that are worked on or wait; one address may have as many as are free."""

CONNECTIONS_PER_ADDRESS_MAX: Final = 100
"""Open at the same time: of 1,024 descriptors, which is what many systems give, others have most."""

DESCRIPTORS: Final = 65_536
"""Files and connections that the process may have open, where the system lets it."""

BACKLOG: Final = 256
"""Connections that are taken in before anything else is done."""

REFUSED_AT_ONCE: Final = 4096
"""Connections that are hung up on before anything else is done: all that wait, on most systems."""

PACE_BURST: Final = 40
"""Requests of any sort that an address may make at once; those after them wait for their turn."""

PACE_COUNTED_S: Final = 0.1
"""How often it is counted how many addresses wait for theirs, and share the time."""

PACE_DELAY_S_MAX: Final = 5.0
"""So long at most; a connection that would wait for longer is ended."""

PACE_COST: Final = 10.0
"""Reading what an address sends counts as so much more of its time: it gets a tenth of the process at most."""

READ_BYTES: Final = 16_384
"""Read at a time of one connection; others come in between."""

PIECE_BYTES: Final = 4096
PIECE_REQUESTS: Final = 0.25
"""A smaller piece of a request counts as so much of one: who waits for it is woken each time."""

REQUEST_TIMEOUT_S: Final = 10.0
"""A connection that sends no whole head of a request for so long, or reads nothing of its answer, is ended."""

BODY_TIMEOUT_S: Final = 30.0
"""The body of a request has to be there whole by then; that of a load by `LOAD_TIMEOUT_S`."""

LOAD_TIMEOUT_S: Final = 300.0
"""A file has to be there whole by then, and to be loaded after as long once more."""

SIGN_IN_PER_S: Final = 0.2
SIGN_IN_BURST: Final = 5
"""Wrong tokens, per address."""

PEOPLE_COUNTED_MAX: Final = 10_000
"""People whose rate is remembered; the one longest away is dropped first."""

TURNS_MAX: Final = 200
"""Answers that are being made; for one address as many as are free."""

CONFLICT_TRIES: Final = 20
"""How often a write is tried again because another client wrote in between."""

CANARY_EVERY_S: Final = 1.0
"""Readiness is proven by a write at most this often."""

CANARY_TIMEOUT_S: Final = 3.0
CONNECT_TIMEOUT_S: Final = 10.0
