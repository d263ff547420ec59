"""Writes messages one after the other, and prints the number of each that is stored."""

import asyncio
import sys

from deployments.store.chats import ONLY_NEW, StaleChat
from tests.databases import opened
from tests.store.talking import CHAT, OWNER, chat_fields, message_fields


async def main(url: str, first: int) -> None:
    async with opened(url, max_messages=1_000_000) as store:
        try:
            await store.chats.put(OWNER, CHAT, chat_fields("Kept"), ONLY_NEW)
        except StaleChat:
            raise AssertionError("the chat was not written by this program") from None
        number = first
        while True:
            await store.chats.add_messages(OWNER, CHAT, [message_fields(number)])
            print(number, flush=True)
            number += 1


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
