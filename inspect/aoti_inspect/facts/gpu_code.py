"""GPU code in a plugin: cubins (ELF files for a GPU), fatbins, PTX text.

Inductor embeds each Triton kernel between the symbols ``__NAME_start`` and ``__NAME_end``; nvcc puts fatbins
into the section ``.nv_fatbin``. Where neither leads to any, the read-only bytes are searched, if the file
uses CUDA at all, and only so many of them.

Sources: ``EM_CUDA`` and ``EF_CUDA_*`` in LLVM's ``BinaryFormat/ELF.h``; the fatbin header of CUDA's
``fatbinary_section.h``; its entries as ``cuobjdump -lelf -lptx`` shows them. Where ``sm_90a`` and
``sm_100f`` are noted was read off the output of ptxas and fatbinary 13.5, for one kernel with and without the
suffix.
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
    from typing import Literal

    from aoti_inspect.budget import Share
    from aoti_inspect.elf.header import Header
    from aoti_inspect.elf.image import ElfImage
    from aoti_inspect.facts.imports import Imports
    from aoti_inspect.source import Source

    Reach = Literal["later", "family", "none"]

#: Images that are listed; a plugin has one for each kernel.
MAX_IMAGES = 4096
#: Names of cubins that are looked at: each costs a window of bytes.
MAX_PATHS = 1 << 12
#: Places, and entries of fatbins, that are looked at whether they turn out to be GPU code or not.
MAX_LOOKS = 1 << 16
#: Bytes that are searched when nothing leads to the code.
MAX_SEARCH = 1 << 26
#: Places that begin like GPU code and are none, after which the search ends: each costs a window of bytes.
MAX_MISSES = 256

FATBIN_MAGIC = 0xBA55ED50
_FATBIN = struct.Struct("<IHHQ")
_FATBIN_MAGIC_BYTES = FATBIN_MAGIC.to_bytes(4, "little")
#: kind, attributes, header bytes, payload bytes, compressed bytes, -, minor, major, architecture, -, flags.
_ENTRY = struct.Struct("<HHIQIIHHI8xQ")
#: The flags of an entry for ``sm_90a`` and for ``sm_100f``.
_ENTRY_A, _ENTRY_F = 1 << 20, 1 << 21
_KIND_PTX, _KIND_ELF = 1, 2
#: The identification's ABI version from which on e_flags have the architecture one byte higher.
_ABI_V2 = 8
#: e_flags of a cubin for ``sm_90a``: EF_CUDA_ACCELERATORS_V1 before that version, EF_CUDA_ACCELERATORS since.
_ACCELERATORS_V1, _ACCELERATORS = 0x800, 0x8
#: ``.nv.compat`` is a list of records: format, attribute, and two bytes of value or of the length of one.
_COMPAT, _COMPAT_VALUE, _COMPAT_SIZED, _ISA_CLASS = b".nv.compat\0", (2, 3), 4, 9
_MOST_COMPAT, _MOST_NAMES = 1 << 12, 1 << 16
_REACH: dict[bytes, Reach] = {b"a": "none", b"f": "family"}
_FATBIN_SECTIONS = (".nv_fatbin", "__nv_relfatbin")
_START = b"_start\0"
_PTX_HEAD = 4096
_CUBIN = b".cubin\0"
_LONGEST_PATH = 4096


def find_gpu_code(image: ElfImage, imports: Imports) -> tuple[GpuImage, ...]:
    """List the GPU code, each piece once, in the file's order; at most `MAX_IMAGES`."""
    found: dict[int, GpuImage] = {}
    cuda = imports.uses_cuda
    share = image.budget.share("the GPU code", MAX_LOOKS, "places and entries")
    # Sections and symbols may name one place many times.
    for offset, size, name in dict.fromkeys(_places(image, kernels=cuda)):
        for item in _read(image, offset, size, share, name):
            found.setdefault(item.offset, item)
            if len(found) == MAX_IMAGES:
                image.note(f"more than {MAX_IMAGES} pieces of GPU code; the rest is not listed", unread=True)
                return tuple(found[key] for key in sorted(found))
    if not found and cuda:
        for item in _search(image, share):
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
    share = image.budget.share("the names of cubins", MAX_PATHS, "places")
    for begin, end in _read_only(image):
        at = image.source.find(_CUBIN, begin, end)
        while at >= 0 and share.take():
            start = max(begin, at - _LONGEST_PATH)
            path = image.source.read(start, at - start).rpartition(b"\0")[2] + _CUBIN[:-1]
            found[decode(path)] = None
            at = image.source.find(_CUBIN, at + 1, end)
    return tuple(found)


def _read_only(image: ElfImage) -> Iterator[tuple[int, int]]:
    """Yield the first `MAX_SEARCH` bytes of what is mapped and can't be written, as ranges, no byte twice."""
    left = MAX_SEARCH
    for start, end in image.read_only:
        if left <= 0:
            return
        yield start, min(end, start + left)
        left -= end - start


def _places(image: ElfImage, *, kernels: bool) -> Iterator[tuple[int, int, str]]:
    """Yield offset, size and kernel ("" if unnamed) of what symbols or sections say is GPU code."""
    for section in image.sections or ():
        if section.name in _FATBIN_SECTIONS:
            yield section.offset, section.size, ""
    # A kernel without the driver that launches it is none, and a string table may have millions of bytes.
    for name in _kernels(image.strings.data) if kernels else ():
        start, end = image.find(f"{name}start"), image.find(f"{name}end")
        if start is None or end is None or end.value <= start.value:
            continue
        offset = image.space.offset_of(start.value)
        if offset is not None:
            size = min(end.value - start.value, image.space.available(start.value))
            yield offset, size, name[2:-1]


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


def _read(image: ElfImage, offset: int, size: int, share: Share, kernel: str = "") -> Iterator[GpuImage]:
    """Read what is at one place: a cubin, PTX text, or fatbins one behind the other."""
    if not share.take():
        return
    head = image.source.read(offset, min(size, _PTX_HEAD))
    if head.startswith(MAGIC):
        cubin = _cubin(image, head, offset, size, share)
        if cubin is not None:
            yield cubin._replace(kernel=kernel or _unnamed(offset))
    elif head.startswith(_FATBIN_MAGIC_BYTES):
        yield from _fatbins(image, offset, size, share, kernel)
    elif b".version " in head and b".target sm_" in head:
        architecture, reach = _ptx_target(head)
        version = _ptx_version(head)
        yield GpuImage("ptx", architecture, version, "elf", offset, size, reach, kernel or _unnamed(offset))


def _unnamed(offset: int) -> str:
    return f"code at {offset:#x}"


def _cubin(image: ElfImage, head: bytes, offset: int, size: int, share: Share) -> GpuImage | None:
    identity = identify(head)
    if identity is None or identity.machine != EM_CUDA:
        return None
    try:
        header = read_header(BufferSource(head), "a cubin")
    except AotiError:
        return None
    if header.abi_version >= _ABI_V2:
        architecture, special = header.flags >> 8 & 0xFF, header.flags & _ACCELERATORS
    else:
        architecture, special = header.flags & 0xFF, header.flags & _ACCELERATORS_V1
    # The tables of a cubin are at its end.
    end = min(size, header.end)
    with image.source.part(offset, end, "a cubin") as whole:
        special = special or _is_special(whole, header, share)
    return GpuImage("cubin", architecture, None, "elf", offset, end, "none" if special else "later")


def _is_special(cubin: Source, header: Header, share: Share) -> bool:
    """Whether a cubin's ``.nv.compat`` says that it is for ``sm_90a`` or the like."""
    count, record = header.section_count, header.layout.section
    if not share.take(count // 16):
        return False
    table = cubin.read(header.section_offset, count * record.size)
    headers = list(record.iter_unpack(table[: len(table) - len(table) % record.size]))
    if header.section_names >= len(headers):
        return False
    start, size = headers[header.section_names][4:6]
    names = cubin.read(start, min(size, _MOST_NAMES))
    found = next((item for item in headers if names.startswith(_COMPAT, item[0])), None)
    raw = b"" if found is None else cubin.read(found[4], min(found[5], _MOST_COMPAT))
    at = 0
    while at + 4 <= len(raw):
        form, attribute, value = raw[at], raw[at + 1], int.from_bytes(raw[at + 2 : at + 4], "little")
        if attribute == _ISA_CLASS and form in _COMPAT_VALUE:
            return value & 0xFF == 1
        at += 4 + (value if form == _COMPAT_SIZED else 0)
    return False


def _fatbins(image: ElfImage, offset: int, size: int, share: Share, kernel: str) -> Iterator[GpuImage]:
    end = offset + size
    while offset + _FATBIN.size <= end and share.take():
        raw = image.source.read(offset, _FATBIN.size)
        if len(raw) < _FATBIN.size:
            return
        magic, _, header_size, payload = _FATBIN.unpack(raw)
        if magic != FATBIN_MAGIC or header_size < _FATBIN.size:
            return
        first, last = offset + header_size, min(offset + header_size + payload, end)
        for entry in _entries(image, first, last, share):
            yield entry._replace(kernel=kernel or _unnamed(offset))
        # Fatbins are aligned to eight bytes in their section.
        offset += -(-(header_size + payload) // 8) * 8


def _entries(image: ElfImage, offset: int, end: int, share: Share) -> Iterator[GpuImage]:
    while offset + _ENTRY.size <= end and share.take():
        raw = image.source.read(offset, _ENTRY.size)
        if len(raw) < _ENTRY.size:
            return
        kind, _, header_size, payload, _, _, minor, major, architecture, flags = _ENTRY.unpack(raw)
        if header_size < _ENTRY.size:
            image.note(f"a fatbin has a broken entry at {offset:#x}; what follows it was not read")
            return
        at = offset + header_size
        reach: Reach = "none" if flags & _ENTRY_A else "later"
        if kind == _KIND_PTX:
            if flags & _ENTRY_F:
                reach = "family"
            yield GpuImage("ptx", architecture, f"{major}.{minor}", "fatbin", at, payload, reach)
        elif kind == _KIND_ELF:
            yield GpuImage("cubin", architecture, None, "fatbin", at, payload, reach)
        offset = at + payload


def _search(image: ElfImage, share: Share) -> Iterator[GpuImage]:
    """Search the first `MAX_SEARCH` read-only bytes for cubins and fatbins, until too much only looks so."""
    misses = 0
    for begin, end in _read_only(image):
        for pattern in (MAGIC, _FATBIN_MAGIC_BYTES):
            # The file's own header is no find.
            at = image.source.find(pattern, max(begin, 1), end)
            while at >= 0:
                items = list(islice(_read(image, at, end - at, share), MAX_IMAGES))
                yield from items
                misses += not items
                if misses > MAX_MISSES:
                    image.note(
                        f"over {MAX_MISSES} places look like GPU code and are none; the search was given up",
                        unread=True,
                    )
                    return
                # What is inside a fatbin was read with it.
                behind = max((item.offset + item.size for item in items), default=at + 1)
                at = image.source.find(pattern, max(behind, at + 1), end)


def _ptx_version(head: bytes) -> str | None:
    text = head.partition(b".version ")[2].split(None, 1)
    version = text[0].decode("ascii", "replace") if text else ""
    return version if version.replace(".", "").isdigit() else None


def _ptx_target(head: bytes) -> tuple[int, Reach]:
    """Return the architecture and the reach of PTX: ``.target sm_100f, debug`` is 100, "family"."""
    words = head.partition(b".target sm_")[2][:8]
    digits = words[: len(words) - len(words.lstrip(b"0123456789"))][:4]
    suffix = words[len(digits) : len(digits) + 1]
    return int(digits or b"0"), _REACH.get(suffix, "later")
