"""Reading memory at an address that somebody else named, without ever faulting.

``process_vm_readv`` on the own process copies what is readable and says how much that was; an address that is
unmapped, guarded, or past the end of a truncated file is a short answer there, not a signal.
"""

from __future__ import annotations

import ctypes
import os
from functools import lru_cache

from aoti_abi.errors import InvalidProgram, NotSupported
from aoti_abi.records import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_PAGE = 4096  # the smallest page of any machine: reads that stop there never span two pages
_FIRST_CHUNK = 256  # most names fit, and a short copy is cheap

#: The longest string that is read from a plugin, bytes; longer ones are taken for unterminated.
MAX_STRING = 16384


class _IoVec(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


def read_prefix(address: int, size: int) -> bytes:
    """Return the readable bytes at ``address``, at most ``size``; fewer where readable memory ends."""
    if size <= 0 or not 0 < address < 1 << 64 or address + size > 1 << 64:
        return b""
    return _reader()(address, size)


@lru_cache(maxsize=1)
def _reader() -> Callable[[int, int], bytes]:
    """Choose a way that this kernel, or the sandbox around the process, allows."""
    probe = ctypes.create_string_buffer(b"probe")
    for reader in (_read_by_call, _read_by_file):
        if reader(ctypes.addressof(probe), 6) == b"probe\0":
            return reader
    raise NotSupported(
        "this process may not read its own memory by address, so a plugin's replies cannot be checked",
        hint="allow process_vm_readv, or /proc/self/mem, in the sandbox",
    )


@lru_cache(maxsize=1)
def _process_vm_readv() -> Callable[..., int] | None:
    try:
        function = ctypes.CDLL(None).process_vm_readv
    except AttributeError:
        return None
    vector = ctypes.POINTER(_IoVec)
    function.argtypes = (ctypes.c_int, vector, ctypes.c_ulong, vector, ctypes.c_ulong, ctypes.c_ulong)
    function.restype = ctypes.c_ssize_t
    return function


def _read_by_call(address: int, size: int) -> bytes:
    function = _process_vm_readv()
    if function is None:
        return b""
    buffer = ctypes.create_string_buffer(size)
    local, remote = _IoVec(ctypes.addressof(buffer), size), _IoVec(address, size)
    count = function(os.getpid(), ctypes.byref(local), 1, ctypes.byref(remote), 1, 0)
    return buffer.raw[:count] if count > 0 else b""


def _read_by_file(address: int, size: int) -> bytes:
    # The kernel lets this file read guarded pages too (FOLL_FORCE), so it is only the second choice.
    # Opened anew each time: a descriptor made before a fork would still show the parent's memory.
    try:
        descriptor = os.open("/proc/self/mem", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.pread(descriptor, size, address)
    except (OSError, OverflowError):
        return b""
    finally:
        os.close(descriptor)


def read_exactly(address: int, size: int, what: str) -> bytes:
    """Return ``size`` bytes at ``address``; ``what`` names them in the error.

    Raises:
        InvalidProgram: not all of them are readable.
    """
    data = read_prefix(address, size)
    if len(data) != size:
        raise InvalidProgram(f"{what} at {address:#x} runs out of readable memory after {len(data)} bytes")
    return data


def read_string(address: int, what: str, bound: int = MAX_STRING) -> bytes:
    """Return the bytes before the NUL at or after ``address``; ``what`` names the string in the error.

    Raises:
        InvalidProgram: a null address, unreadable memory, or no NUL within ``bound`` bytes.
    """
    if not address:
        raise InvalidProgram(f"{what} is null")
    parts: list[bytes] = []
    length = 0
    chunk = _FIRST_CHUNK
    while length < bound:
        here = address + length
        size = min(chunk, bound - length, _PAGE - here % _PAGE)
        data = read_prefix(here, size)
        head, nul, _ = data.partition(b"\0")
        parts.append(head)
        if nul:
            return b"".join(parts)
        length += len(data)
        if len(data) < size:
            raise InvalidProgram(f"{what} at {address:#x} runs out of readable memory after {length} bytes")
        chunk = _PAGE
    raise InvalidProgram(f"{what} at {address:#x} is not NUL-terminated within {bound} bytes")


def read_text(address: int, what: str, bound: int = MAX_STRING) -> str:
    """Return a NUL-terminated UTF-8 string; ``what`` names it in the error.

    Raises:
        InvalidProgram: as `read_string`, or the bytes are not UTF-8.
    """
    raw = read_string(address, what, bound)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        shown = raw[:60].decode("ascii", "backslashreplace")
        raise InvalidProgram(f"{what} is not UTF-8: {shown!r}", cause=str(error)) from error
