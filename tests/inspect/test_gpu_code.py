"""GPU code in a plugin: cubins, fatbins, PTX, wherever they are."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from aoti_inspect.artifacts.facts import read_facts
from aoti_inspect.elf.image import ElfImage
from aoti_inspect.facts.gpu_code import MAX_IMAGES, find_gpu_code
from aoti_inspect.facts.imports import Imports
from aoti_inspect.facts.records import GpuImage

PTX = (
    b"//\n// Generated\n//\n.version 8.7\n.target sm_90a\n.address_size 64\n\n.visible .entry k() { ret; }\n"
)


def cubin(architecture: int, *, abi: int = 8, size: int = 256) -> bytes:
    """The headers of a cubin as ptxas 12 (ABI version 7) and ptxas 13 (8) write them, tables at the end."""
    flags = architecture << 8 | 0x06000004 if abi >= 8 else architecture << 16 | 0x500 | architecture
    ident = b"\x7fELF\x02\x01\x01" + bytes([0x41 if abi >= 8 else 0x33, abi]) + bytes(7)
    head = struct.pack("<HHIQQQIHHHHHH", 2, 190, 1, 0, size - 56, size - 120, flags, 64, 56, 1, 64, 1, 0)
    return (ident + head).ljust(size, b"\xcc")


def fatbin(*entries: tuple[int, int, bytes, tuple[int, int]]) -> bytes:
    """A fatbin as ``fatbinary --create`` writes it; an entry is kind (1 PTX, 2 ELF), SM, payload, version."""
    body = b""
    for kind, architecture, code, (major, minor) in entries:
        payload = code + bytes(-len(code) % 8)
        body += struct.pack("<HHIQIIHHI", kind, 0x101, 64, len(payload), 0, 0, minor, major, architecture)
        body += struct.pack("<IIQQQ", 0, 0, 0x11, 0, 0) + payload
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def assembly(data: bytes) -> str:
    return "".join(f".byte {','.join(map(str, data[at : at + 64]))}\\n" for at in range(0, len(data), 64))


def kernel(name: str, data: bytes) -> str:
    """A kernel embedded as Inductor embeds it."""
    return (
        f'__asm__(".section .rodata\\n.globl __{name}_start\\n__{name}_start:\\n{assembly(data)}'
        f'.globl __{name}_end\\n__{name}_end:\\n.section .note.GNU-stack,\\"\\"\\n");\n'
    )


CALLS_CUDA = "extern int cuModuleLoadData(void *, const void *); void *keep = (void *)cuModuleLoadData;\n"


def find(path: str) -> tuple[GpuImage, ...]:
    image = ElfImage(Path(path).read_bytes(), path)
    return find_gpu_code(image, Imports(image.facts()))


@pytest.mark.parametrize("architecture", [80, 90, 100, 103, 120])
@pytest.mark.parametrize("abi", [7, 8])
def test_a_cubin_between_its_symbols(compile_library: Callable[..., str], architecture: int, abi: int):
    """The architecture is in the cubin's own header, in one of two places."""
    code = cubin(architecture, abi=abi)
    path = compile_library(CALLS_CUDA + kernel("triton_k", code))
    (found,) = find(path)
    assert found[:4] == ("cubin", architecture, None, "elf")
    assert Path(path).read_bytes()[found.offset : found.offset + found.size] == code


def test_several_cubins_are_listed_in_the_order_of_the_file(compile_library: Callable[..., str]):
    codes = [cubin(90, size=200 + 64 * number) for number in range(4)]
    path = compile_library(CALLS_CUDA + "".join(kernel(f"k{n}", code) for n, code in enumerate(codes)))
    found = find(path)
    assert [image.size for image in found] == [200, 264, 328, 392]
    assert len({image.offset for image in found}) == 4


def test_a_fatbin_lists_machine_code_and_ptx(compile_library: Callable[..., str]):
    """Which GPUs have code, and which PTX version a driver must read for the others."""
    data = fatbin((2, 80, cubin(80), (1, 8)), (2, 90, cubin(90), (1, 8)), (1, 90, PTX, (8, 7)))
    path = compile_library(CALLS_CUDA + kernel("k", data))
    assert [image[:4] for image in find(path)] == [
        ("cubin", 80, None, "fatbin"),
        ("cubin", 90, None, "fatbin"),
        ("ptx", 90, "8.7", "fatbin"),
    ]


def test_fatbins_in_their_section_are_read_one_behind_the_other(compile_library: Callable[..., str]):
    data = fatbin((2, 80, cubin(80), (1, 8))) + fatbin((1, 75, PTX, (7, 5)))
    path = compile_library(f'__asm__(".section .nv_fatbin,\\"a\\"\\n{assembly(data)}");')
    assert [image[:3] for image in find(path)] == [("cubin", 80, None), ("ptx", 75, "7.5")]


def test_ptx_as_text(compile_library: Callable[..., str]):
    path = compile_library(CALLS_CUDA + kernel("k", PTX + b"\0"))
    assert find(path)[0][:4] == ("ptx", 90, "8.7", "elf")
    assert (find(path)[0].reach, find(path)[0].kernel) == ("none", "k")


@pytest.mark.parametrize(
    ("target", "label"),
    [("sm_90", "compute_90"), ("sm_100f", "compute_100f"), ("sm_120a, debug", "compute_120a")],
)
def test_ptx_for_certain_gpus(compile_library: Callable[..., str], target: str, label: str):
    text = f".version 9.0\n.target {target}\n.address_size 64\n".encode()
    assert find(compile_library(CALLS_CUDA + kernel("k", text + b"\0")))[0].label == label


def special_cubin(value: int, *, first: bytes = b"") -> bytes:
    """A cubin with a .nv.compat as ptxas 13 writes it; its attribute 9 is 1 for ``sm_90a``."""
    names = b"\0.nv.compat\0.shstrtab\0"
    compat = first + bytes((2, 9, value, 0, 3, 13, 1, 1))
    body = cubin(90, size=256)[:64] + names + compat
    table = b"".join(
        struct.pack("<IIQQQQIIQQ", name, 1 if size else 0, 0, 0, at, size, 0, 0, 1, 0)
        for name, at, size in ((0, 0, 0), (1, 64 + len(names), len(compat)), (12, 64, len(names)))
    )
    raw = bytearray(body + bytes(-len(body) % 8))
    struct.pack_into("<QQI", raw, 32, 0, len(raw), struct.unpack_from("<I", raw, 48)[0])
    struct.pack_into("<HHHHH", raw, 54, 0, 0, 64, 3, 2)
    return bytes(raw) + table


@pytest.mark.parametrize(
    ("code", "label"),
    [
        (special_cubin(0), "sm_90"),
        (special_cubin(1), "sm_90a"),
        (special_cubin(1, first=bytes((4, 11, 8, 0)) + bytes(range(1, 9))), "sm_90a"),
        (special_cubin(1, first=bytes((4, 11, 255, 255))), "sm_90"),  # the record reaches past the end
        (cubin(90, abi=7)[:49] + bytes((0x0D,)) + cubin(90, abi=7)[50:], "sm_90a"),
    ],
)
def test_a_cubin_for_one_gpu(compile_library: Callable[..., str], code: bytes, label: str):
    (found,) = find(compile_library(CALLS_CUDA + kernel("k", code)))
    assert (found.label, found.size) == (label, len(code))


@pytest.mark.parametrize(
    ("flags", "labels"),
    [
        (0x11, ["sm_100", "compute_100"]),
        (0x1100011, ["sm_100a", "compute_100a"]),
        (0x1200011, ["sm_100", "compute_100f"]),
    ],
)
def test_entries_of_a_fatbin_say_which_gpus(
    compile_library: Callable[..., str], flags: int, labels: list[str]
):
    data = bytearray(fatbin((2, 100, cubin(100), (1, 8)), (1, 100, PTX, (9, 0))))
    for entry in (16, 16 + 64 + 256):
        struct.pack_into("<Q", data, entry + 40, flags)
    assert [image.label for image in find(compile_library(CALLS_CUDA + kernel("k", bytes(data))))] == labels


def test_kernels_are_told_apart(compile_library: Callable[..., str]):
    """Each fatbin is the code of one kernel, or of one source, for several GPUs."""
    data = fatbin((2, 80, cubin(80), (1, 8)), (2, 90, cubin(90), (1, 8)))
    path = compile_library(CALLS_CUDA + kernel("k0", data) + kernel("k1", cubin(80)))
    assert [image.kernel for image in find(path)] == ["k0", "k0", "k1"]
    path = compile_library(f'__asm__(".section .nv_fatbin,\\"a\\"\\n{assembly(data + data)}");')
    kernels = [image.kernel for image in find(path)]
    assert len(kernels) == 4
    assert len(set(kernels)) == 2


@pytest.mark.parametrize("data", [cubin(86), fatbin((2, 86, cubin(86), (1, 8)))], ids=["cubin", "fatbin"])
def test_code_without_symbols_is_found_by_its_magic_number(compile_library: Callable[..., str], data: bytes):
    hidden = f'__asm__(".section .rodata\\n.balign 8\\n{assembly(bytes(1000) + data)}");\n'
    (found,) = find(compile_library(CALLS_CUDA + hidden))
    assert (found.kind, found.architecture) == ("cubin", 86)
    # Nothing is searched for in a file that does not use CUDA.
    assert find(compile_library(hidden)) == ()


@pytest.mark.parametrize(
    "data",
    [
        b"\x7fELF" + bytes(200),
        b"\x7fELF\x02\x01\x01" + bytes(10),
        cubin(90)[:40],
        fatbin((2, 80, cubin(80), (1, 8)))[:20],
        struct.pack("<IHHQ", 0xBA55ED50, 1, 0, 1 << 60) + bytes(100),
        struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 0) * 4,
        b"just some constants",
    ],
)
def test_what_only_looks_like_gpu_code_is_none(compile_library: Callable[..., str], data: bytes):
    assert find(compile_library(CALLS_CUDA + kernel("k", data))) == ()


def test_a_broken_entry_in_a_fatbin_is_noted(compile_library: Callable[..., str]):
    data = bytearray(fatbin((2, 80, cubin(80), (1, 8)), (2, 90, cubin(90), (1, 8))))
    second = 16 + 64 + 256
    struct.pack_into("<I", data, second + 4, 3)
    path = compile_library(CALLS_CUDA + kernel("k", bytes(data)))
    image = ElfImage(Path(path).read_bytes(), path)
    assert [item.architecture for item in find_gpu_code(image, Imports(image.facts()))] == [80]
    assert any("broken entry" in sentence for sentence in image.anomalies)


def test_many_pieces_of_code_are_bounded(compile_library: Callable[..., str]):
    data = fatbin(*[(1, 80, b"", (8, 0))] * (MAX_IMAGES + 10))
    path = compile_library(CALLS_CUDA + kernel("k", data))
    image = ElfImage(Path(path).read_bytes(), path)
    assert len(find_gpu_code(image, Imports(image.facts()))) == MAX_IMAGES
    assert any("the rest is not listed" in sentence for sentence in image.anomalies)


@pytest.mark.parametrize("start", [b"\x7fELF", struct.pack("<I", 0xBA55ED50)])
def test_a_search_that_finds_only_lookalikes_is_given_up(compile_library: Callable[..., str], start: bytes):
    """Each of a million of them would cost a window of a megabyte."""
    body = assembly(start * 16)
    filler = f'__asm__(".section .rodata\\n.rept 65536\\n{body}.endr\\n");\n'
    path = compile_library(CALLS_CUDA + filler)
    image = ElfImage(Path(path).read_bytes(), path)
    imports = Imports(image.facts())
    begin = time.monotonic()
    assert find_gpu_code(image, imports) == ()
    assert time.monotonic() - begin < 20
    assert any("the search was given up" in sentence for sentence in image.anomalies)


def test_cpu_plugins_have_none(plugins: Path):
    assert find(str(plugins / "mlp.so")) == ()


def test_names_of_cubins_that_are_opened_by_path(compile_library):
    source = """
    int cuModuleLoad(void **module, const char *path);
    const char *const paths[] = {"/tmp/torchinductor_me/ab/cab.cubin", "/tmp/torchinductor_me/cd/ccd.cubin"};
    int load(void **module, int i) { return cuModuleLoad(module, paths[i]); }
    """
    paths = ("/tmp/torchinductor_me/ab/cab.cubin", "/tmp/torchinductor_me/cd/ccd.cubin")
    assert read_facts(compile_library(source)).cubin_paths == paths
    # Another function takes code in memory: then such a string is just a string.
    assert read_facts(compile_library(source.replace("cuModuleLoad", "cuModuleLoadData"))).cubin_paths == ()


def test_a_string_without_end_and_one_without_number_are_bounded(compile_library):
    long = "x" * 10_000 + ".cubin"
    source = f"""
    int cuModuleLoad(void **module, const char *path);
    int load(void **module) {{ return cuModuleLoad(module, "{long}"); }}
    __asm__(".section .rodata\\n .rept 300000\\n .asciz \\"a.cubin\\"\\n .endr\\n .text\\n");
    """
    start = time.monotonic()
    paths = read_facts(compile_library(source)).cubin_paths
    assert time.monotonic() - start < 20
    assert "a.cubin" in paths
    assert max(map(len, paths)) < 5000
