"""Messages over pipes: a JSON document and raw bytes, each preceded by its length.

All processes of a tuning run communicate by frames over pipes. Only the orders to fork a compile
worker, which pass descriptors, need a socket (`compiling.fork_server`). Pickle is used only for the
cases that a fork of the runner builds (`case_builder`).
"""

from __future__ import annotations

import json
import os
import struct
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from tilewright.schedules.errors import WorkloadError

_HEADER = struct.Struct("<IQ")
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Frame:
    """One message: `document` is JSON data, `blob` raw bytes."""

    document: dict[str, Any]
    blob: bytes = b""


def write_frame(fd: int, frame: Frame) -> None:
    """Write all of `frame`, and wait while the pipe is full. Raise BrokenPipeError if the pipe is
    closed."""
    text = json.dumps(frame.document, separators=(",", ":")).encode()
    rest = memoryview(_HEADER.pack(len(text), len(frame.blob)) + text + frame.blob)
    while rest:
        rest = rest[os.write(fd, rest) :]


@dataclass(slots=True)
class FrameReader:
    """A reader of frames from `fd`. A frame may arrive in any number of pieces."""

    fd: int
    ended: bool = False
    _buffer: bytearray = field(default_factory=bytearray)
    _complete: deque[Frame] = field(default_factory=deque)

    @property
    def buffered(self) -> bool:
        return bool(self._complete)

    def read_some(self) -> list[Frame]:
        """Read once and return the complete frames. Set `ended` at the end of the stream.

        If the descriptor is blocking and has no data, wait.
        """
        self._read()
        frames = list(self._complete)
        self._complete.clear()
        return frames

    def read_frame(self) -> Frame | None:
        """Return the next frame, or None at the end of the stream. If the descriptor is blocking,
        wait for it."""
        while not self._complete and not self.ended:
            self._read()
        return self._complete.popleft() if self._complete else None

    def _read(self) -> None:
        try:
            piece = os.read(self.fd, _CHUNK_BYTES)
        except BlockingIOError:
            return
        if not piece:
            self.ended = True
        self._buffer += piece
        while len(self._buffer) >= _HEADER.size:
            text_bytes, blob_bytes = _HEADER.unpack_from(self._buffer)
            end = _HEADER.size + text_bytes + blob_bytes
            if len(self._buffer) < end:
                break
            text = bytes(self._buffer[_HEADER.size : _HEADER.size + text_bytes])
            blob = bytes(self._buffer[_HEADER.size + text_bytes : end])
            self._complete.append(Frame(json.loads(text), blob))
            del self._buffer[:end]


def refusal(error: WorkloadError) -> Frame:
    """Return the answer of a process that rejects its workload because of `error`."""
    return Frame({"refused": {"detail": str(error), "code": error.code, "pointer": error.pointer}})


def raise_refusal(document: dict[str, Any]) -> None:
    """Raise the WorkloadError of `document` if `document` is an answer built by `refusal`."""
    if "refused" in document:
        said = document["refused"]
        raise WorkloadError(said["detail"], code=said["code"], pointer=said["pointer"])
