"""Messages between the verifier and its workers: a 4-byte big-endian length, then that many bytes of ASCII JSON."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from typing import Any, BinaryIO

_HEADER = struct.Struct(">I")


def encode(message: Any) -> bytes:
    """One frame."""
    body = json.dumps(message, separators=(",", ":")).encode("ascii")
    return _HEADER.pack(len(body)) + body


def receive(stream: BinaryIO) -> Any:
    """The next message of a blocking stream; None at its end."""
    header = stream.read(_HEADER.size)
    return json.loads(stream.read(_HEADER.unpack(header)[0])) if len(header) == _HEADER.size else None


def take(buffer: bytearray) -> Iterator[Any]:
    """Remove and yield the complete messages at the start of a buffer."""
    while len(buffer) >= _HEADER.size:
        end = _HEADER.size + _HEADER.unpack_from(buffer)[0]
        if len(buffer) < end:
            return
        message = json.loads(buffer[_HEADER.size : end])
        del buffer[:end]
        yield message
