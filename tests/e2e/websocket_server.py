"""
An upstream that speaks WebSocket, by the C{websockets} library.  Prints C{listening PORT}.

    /first   greets before the client has said anything, then echoes
    /pieces  every text back, a character a fragment
    /leave   closes with 4001 "enough" after the first message
    other    every message back

When a connection is over it prints C{closed PATH CODE REASON}.
"""

from __future__ import annotations

import asyncio

from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed


async def talk(connection: ServerConnection) -> None:
    """One client."""
    assert connection.request is not None
    path = connection.request.path
    if path == "/first":
        await connection.send("welcome")
    try:
        async for message in connection:
            if path == "/leave":
                await connection.close(4001, "enough")
                return
            await connection.send(iter(str(message)) if path == "/pieces" else message)
    except ConnectionClosed:
        pass
    print("closed", path, connection.close_code, connection.close_reason, flush=True)


async def main() -> None:
    async with serve(talk, "127.0.0.1", 0, max_size=4 * 1024 * 1024) as server:
        print(f"listening {next(iter(server.sockets)).getsockname()[1]}", flush=True)
        await asyncio.get_running_loop().create_future()


asyncio.run(main())
