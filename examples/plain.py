"""Run it twice: the second time it knows you."""

import holdfast
from holdfast import Message

with holdfast.connect("sqlite:///plain.db") as store:
    for message in store.history("user-42", limit=50):
        print(f"{message.seq}. {message.role}: {message.content}")
    turn = [Message("user", "My name is Xiao Li"), Message("assistant", "Nice to meet you")]
    ack = store.append("user-42", turn)
    print(f"kept as {ack.first} to {ack.last}, level {ack.durability.name}")
