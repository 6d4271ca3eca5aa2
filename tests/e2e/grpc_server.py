"""
A server of gRPC that is none of ours: grpcio, with raw bytes for messages.  Prints C{listening PORT}.  With a file for
its certificate and one for the key as arguments it speaks TLS.

Service C{shop.Orders}; "told" is what its last calls have seen, for C{Told}.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc

MOST = 64 << 20
told: dict[str, Any] = {"cancelled": 0, "running": 0}
lock = threading.Lock()


def add(name: str, amount: int) -> None:
    with lock:
        told[name] += amount


def mirror(context: grpc.ServicerContext) -> None:
    """Metadata that begin with app- come back: as they are at the beginning, and with end- at the end."""
    found = [(each.key, each.value) for each in context.invocation_metadata() if each.key.startswith("app-")]
    context.send_initial_metadata(found)
    context.set_trailing_metadata([("end-" + key[4:], value) for key, value in found])


def place(request: bytes, context: grpc.ServicerContext) -> bytes:
    """Unary: the message comes back."""
    mirror(context)
    return request


def count(request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
    """Server streaming: so many messages, of so many bytes; then it may fail."""
    number, size, *fails = json.loads(request)
    for index in range(number):
        yield b"%d " % index + b"x" * size
    if fails:
        context.abort(grpc.StatusCode.DATA_LOSS, "half of it was lost")


def total(requests: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
    """Client streaming: how many messages, and of how many bytes."""
    sizes = [len(request) for request in requests]
    return json.dumps([len(sizes), sum(sizes)]).encode()


def chat(requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
    """Both: an answer to each."""
    for request in requests:
        yield b"you said " + request


def fail(request: bytes, context: grpc.ServicerContext) -> bytes:
    """A status, a message and details; nothing else is sent."""
    context.set_trailing_metadata([("grpc-status-details-bin", b"\0\1\xfe"), ("x-why", "so")])
    context.abort(grpc.StatusCode.FAILED_PRECONDITION, "nicht möglich: 100 %\n")
    raise AssertionError


def left(request: bytes, context: grpc.ServicerContext) -> bytes:
    """Seconds that are left, or null."""
    remaining = context.time_remaining()
    return json.dumps(remaining if remaining is not None and remaining < 1e9 else None).encode()


def wait(request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
    """One message, if it is asked for; then nothing, until somebody gives it up."""
    over = threading.Event()
    context.add_callback(over.set)
    add("running", 1)
    if request:
        yield request
    over.wait(60)
    add("running", -1)
    add("cancelled", 1)


def die(request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
    """One message, then the whole process is gone."""
    yield request
    threading.Event().wait(0.2)
    os._exit(0)


def asked(request: bytes, context: grpc.ServicerContext) -> bytes:
    """What was told of others."""
    with lock:
        return json.dumps(told).encode()


def main() -> None:
    server = grpc.server(
        ThreadPoolExecutor(16),
        options=[("grpc.max_receive_message_length", MOST), ("grpc.max_send_message_length", MOST)],
    )
    server.add_generic_rpc_handlers(
        [
            grpc.method_handlers_generic_handler(
                "shop.Orders",
                {
                    "Place": grpc.unary_unary_rpc_method_handler(place),
                    "Count": grpc.unary_stream_rpc_method_handler(count),
                    "Total": grpc.stream_unary_rpc_method_handler(total),
                    "Chat": grpc.stream_stream_rpc_method_handler(chat),
                    "Fail": grpc.unary_unary_rpc_method_handler(fail),
                    "Left": grpc.unary_unary_rpc_method_handler(left),
                    "Wait": grpc.unary_stream_rpc_method_handler(wait),
                    "Die": grpc.unary_stream_rpc_method_handler(die),
                    "Told": grpc.unary_unary_rpc_method_handler(asked),
                },
            )
        ]
    )
    if sys.argv[1:]:
        cert, key = (Path(name).read_bytes() for name in sys.argv[1:])
        port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([(key, cert)]))
    else:
        port = server.add_insecure_port("127.0.0.1:0")
    print("listening", port)
    sys.stdout.flush()
    server.start()
    server.wait_for_termination()


main()
