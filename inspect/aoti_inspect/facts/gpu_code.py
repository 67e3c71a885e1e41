"""GPU code in a plugin: cubins (ELF files for a GPU), fatbins, PTX text.

Inductor embeds each Triton kernel between the symbols ``__NAME_start`` and ``__NAME_end``; nvcc puts fatbins
into the section ``.nv_fatbin``. Where neither leads to any, the read-only bytes are searched, if the file
uses CUDA at all, and only so many of them.

Sources: ``EM_CUDA`` and ``EF_CUDA_*`` in LLVM's ``BinaryFormat/ELF.h``; the fatbin header of CUDA's
``fatbinary_section.h``; its entries as ``cuobjdump -lelf -lptx`` shows them.
"""

from __future__ import annotations

import struct
from itertools import islice

from aoti_abi.errors import AotiError
from aoti_abi.records import TYPE_CHECKING
from aoti_inspect.elf.format import EM_CUDA, MAGIC
from aoti_inspect.elf.header import identify, read_header
from aoti_inspect.facts.records import GpuImage
from aoti_inspect.source import BufferSource
from aoti_inspect.text import decode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aoti_inspect.elf.image import ElfImage
    from aoti_inspect.facts.imports import Imports

#: Images that are listed; a plugin has one for each kernel.
MAX_IMAGES = 4096
#: Names of cubins that are listed for each segment: each costs a look at a window of bytes.
MAX_PATHS = 256
#: Bytes that are searched when nothing leads to the code.
MAX_SEARCH = 1 << 26
#: Places that begin like GPU code and are none, after which the search ends: each costs a window of bytes.
MAX_MISSES = 256

FATBIN_MAGIC = 0xBA55ED50
_FATBIN = struct.Struct("<IHHQ")
_FATBIN_MAGIC_BYTES = FATBIN_MAGIC.to_bytes(4, "little")
#: kind, attributes, header bytes, payload bytes, compressed bytes, -, minor, major, architecture.
_ENTRY = struct.Struct("<HHIQIIHHI")
_KIND_PTX, _KIND_ELF = 1, 2
#: The identification's ABI version from which on e_flags have the architecture one byte higher.
_ABI_V2 = 8
_FATBIN_SECTIONS = (".nv_fatbin", "__nv_relfatbin")
_START = b"_start\0"
_PTX_HEAD = 4096
_CUBIN = b".cubin\0"
_LONGEST_PATH = 4096


def find_gpu_code(image: ElfImage, imports: Imports) -> tuple[GpuImage, ...]:
    """List the GPU code, each piece once, in the file's order; at most `MAX_IMAGES`."""
    found: dict[int, GpuImage] = {}
    cuda = imports.uses_cuda
    for offset, size in _places(image, kernels=cuda):
        for item in _read(image, offset, size):
            found.setdefault(item.offset, item)
            if len(found) == MAX_IMAGES:
                image.note(f"more than {MAX_IMAGES} pieces of GPU code; the rest is not listed")
                return tuple(found[key] for key in sorted(found))
    if not found and cuda:
        for item in _search(image):
            found.setdefault(item.offset, item)
            if len(found) == MAX_IMAGES:
                break
    return tuple(found[key] for key in sorted(found))


def find_cubin_paths(image: ElfImage, imports: Imports) -> tuple[str, ...]:
    """List the names of cubins in the read-only bytes of a plugin that loads them by path (cuModuleLoad).

    Inductor's wrapper has the path of each kernel as it was where the model was compiled; with a directory
    for cubins its last part counts.
    """
    if not imports.has("cuModuleLoad"):
        return ()
    found: dict[str, None] = {}
    budget = MAX_SEARCH
    for segment in image.segments:
        if segment.type != "LOAD" or "W" in segment.flags or budget <= 0:
            continue
        end = segment.offset + min(segment.file_size, budget)
        budget -= segment.file_size
        at = image.source.find(_CUBIN, segment.offset, end)
        for _ in range(MAX_PATHS):
            if at < 0:
                break
            start = max(segment.offset, at - _LONGEST_PATH)
            path = image.source.read(start, at - start).rpartition(b"\0")[2] + _CUBIN[:-1]
            found[decode(path)] = None
            at = image.source.find(_CUBIN, at + 1, end)
    return tuple(found)


def _places(image: ElfImage, *, kernels: bool) -> Iterator[tuple[int, int]]:
    """Yield offset and size of what symbols or sections say is GPU code."""
    for section in image.sections or ():
        if section.name in _FATBIN_SECTIONS:
            yield section.offset, section.size
    # A kernel without the driver that launches it is none, and a string table may have millions of bytes.
    for name in _kernels(image.strings.data) if kernels else ():
        start, end = image.find(f"{name}start"), image.find(f"{name}end")
        if start is None or end is None or end.value <= start.value:
            continue
        offset = image.space.offset_of(start.value)
        if offset is not None:
            yield offset, min(end.value - start.value, image.space.available(start.value))


def _kernels(strings: bytes) -> Iterator[str]:
    """Yield the names in a string table that are ``__NAME_start``, up to the last underscore."""
    at = strings.find(_START)
    for _ in range(MAX_IMAGES):
        if at < 0:
            return
        begin = strings.rfind(b"\0", 0, at) + 1
        if strings.startswith(b"__", begin):
            yield decode(strings[begin : at + 1])
        at = strings.find(_START, at + 1)


def _read(image: ElfImage, offset: int, size: int) -> Iterator[GpuImage]:
    """Read what is at one place: a cubin, PTX text, or fatbins one behind the other."""
    head = image.source.read(offset, min(size, _PTX_HEAD))
    if head.startswith(MAGIC):
        cubin = _cubin(head, offset, size)
        if cubin is not None:
            yield cubin
    elif head.startswith(_FATBIN_MAGIC_BYTES):
        yield from _fatbins(image, offset, size)
    elif b".version " in head and b".target sm_" in head:
        yield GpuImage("ptx", _ptx_target(head), _ptx_version(head), "elf", offset, size)


def _cubin(head: bytes, offset: int, size: int) -> GpuImage | None:
    identity = identify(head)
    if identity is None or identity.machine != EM_CUDA:
        return None
    try:
        header = read_header(BufferSource(head), "a cubin")
    except AotiError:
        return None
    architecture = header.flags >> 8 & 0xFF if header.abi_version >= _ABI_V2 else header.flags & 0xFF
    # The tables of a cubin are at its end.
    return GpuImage("cubin", architecture, None, "elf", offset, min(size, header.end))


def _fatbins(image: ElfImage, offset: int, size: int) -> Iterator[GpuImage]:
    end = offset + size
    while offset + _FATBIN.size <= end:
        raw = image.source.read(offset, _FATBIN.size)
        if len(raw) < _FATBIN.size:
            return
        magic, _, header_size, payload = _FATBIN.unpack(raw)
        if magic != FATBIN_MAGIC or header_size < _FATBIN.size:
            return
        yield from _entries(image, offset + header_size, min(offset + header_size + payload, end))
        # Fatbins are aligned to eight bytes in their section.
        offset += -(-(header_size + payload) // 8) * 8


def _entries(image: ElfImage, offset: int, end: int) -> Iterator[GpuImage]:
    while offset + _ENTRY.size <= end:
        raw = image.source.read(offset, _ENTRY.size)
        if len(raw) < _ENTRY.size:
            return
        kind, _, header_size, payload, _, _, minor, major, architecture = _ENTRY.unpack(raw)
        if header_size < _ENTRY.size:
            image.note(f"a fatbin has a broken entry at {offset:#x}; what follows it was not read")
            return
        at = offset + header_size
        if kind == _KIND_PTX:
            yield GpuImage("ptx", architecture, f"{major}.{minor}", "fatbin", at, payload)
        elif kind == _KIND_ELF:
            yield GpuImage("cubin", architecture, None, "fatbin", at, payload)
        offset = at + payload


def _search(image: ElfImage) -> Iterator[GpuImage]:
    """Search the first `MAX_SEARCH` read-only bytes for cubins and fatbins, until too much only looks so."""
    budget, misses = MAX_SEARCH, 0
    for segment in image.segments:
        if segment.type != "LOAD" or "W" in segment.flags or budget <= 0:
            continue
        end = segment.offset + min(segment.file_size, budget)
        budget -= segment.file_size
        for pattern in (MAGIC, _FATBIN_MAGIC_BYTES):
            # The file's own header is no find.
            at = image.source.find(pattern, max(segment.offset, 1), end)
            while at >= 0:
                items = list(islice(_read(image, at, segment.offset + segment.file_size - at), MAX_IMAGES))
                yield from items
                misses += not items
                if misses > MAX_MISSES:
                    image.note(
                        f"over {MAX_MISSES} places look like GPU code and are none; the search was given up"
                    )
                    return
                # What is inside a fatbin was read with it.
                behind = max((item.offset + item.size for item in items), default=at + 1)
                at = image.source.find(pattern, max(behind, at + 1), end)


def _ptx_version(head: bytes) -> str | None:
    text = head.partition(b".version ")[2].split(None, 1)
    version = text[0].decode("ascii", "replace") if text else ""
    return version if version.replace(".", "").isdigit() else None


def _ptx_target(head: bytes) -> int:
    digits = bytearray()
    for byte in head.partition(b".target sm_")[2][:4]:
        if not 48 <= byte <= 57:
            break
        digits.append(byte)
    return int(digits or b"0")
