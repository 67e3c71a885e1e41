"""Thousands of damaged plugins: each gives facts or one of our errors, within a second."""

from __future__ import annotations

import random
import time
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aoti_abi.errors import AotiError
from aoti_inspect.elf.image import ElfImage
from aoti_inspect.facts.plugin import plugin_facts
from aoti_inspect.facts.second_view import look

PLUGINS = Path(__file__).resolve().parents[2] / "fixtures" / "plugins"
#: Values that break counts, sizes and addresses.
EXTREMES = (
    0,
    1,
    0x7F,
    0x80,
    0xFF,
    0xFFFF,
    0x7FFFFFFF,
    0x80000000,
    0xFFFFFFFF,
    (1 << 63) - 1,
    1 << 63,
    (1 << 64) - 1,
)
pytestmark = pytest.mark.fuzz


def thorough(examples: int) -> settings:
    return settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))


@cache
def plugin(name: str) -> bytes:
    return (PLUGINS / f"{name}.so").read_bytes()


def examine(data: bytes, *, sections: bool = False) -> None:
    """Read everything; fail on any exception but ours, and on anything that seems to hang."""
    start = time.perf_counter()
    try:
        image = ElfImage(data, "mutated.so")
        facts = plugin_facts(image, metadata=None)
        for name in facts.elf.exports.container:
            image.defines(name)
        image.defines("no_such_symbol")
        list(image.defined_names())
        if sections:
            look(data, facts.elf)
    except AotiError as error:
        assert str(error)
        assert error.path
    assert time.perf_counter() - start < 20


def tables(data: bytes) -> list[tuple[int, int]]:
    """Offset and size of what a reader goes by: headers, PT_DYNAMIC, hash, symbols, versions."""
    image = ElfImage(data, "plugin.so")
    places = [(0, 64 + 56 * len(image.segments))]
    dynamic = image.dynamic
    assert dynamic is not None
    places += [(item.offset, item.file_size) for item in image.segments if item.type == "DYNAMIC"]
    for address in dynamic.tables_above(0):
        offset = image.space.offset_of(address)
        if offset is not None:
            places.append((offset, 400))
    places.append((image.header.section_offset, 64 * image.header.section_count))
    return places


@thorough(150)
@given(
    name=st.sampled_from(["mlp", "counter"]),
    seed=st.integers(0, 1 << 32),
    flips=st.integers(1, 40),
)
def test_random_bytes_in_the_tables(name: str, seed: int, flips: int):
    # One example is ten damaged files: reading is faster than hypothesis' bookkeeping.
    numbers = random.Random(seed)
    original = plugin(name)
    places = tables(original)
    for _ in range(10):
        data = bytearray(original)
        for _ in range(flips):
            offset, size = numbers.choice(places)
            at = offset + numbers.randrange(size)
            if at < len(data):
                data[at] = numbers.choice((numbers.randrange(256), data[at] ^ 1 << numbers.randrange(8)))
        examine(bytes(data), sections=numbers.random() < 0.1)


@thorough(150)
@given(seed=st.integers(0, 1 << 32), width=st.sampled_from([2, 4, 8]))
def test_extreme_numbers_in_the_tables(seed: int, width: int):
    numbers = random.Random(seed)
    original = plugin("mlp_blob")
    places = tables(original)
    for _ in range(10):
        data = bytearray(original)
        for _ in range(numbers.choice((1, 1, 1, 2, 5))):
            offset, size = numbers.choice(places)
            at = offset + numbers.randrange(0, size, width)
            value = numbers.choice((*EXTREMES, numbers.randrange(len(data)))) & ((1 << 8 * width) - 1)
            if at + width <= len(data):
                data[at : at + width] = value.to_bytes(width, "little")
        examine(bytes(data))


@thorough(300)
@given(size=st.integers(0, 300_000), tail=st.binary(max_size=64))
def test_truncations(size: int, tail: bytes):
    examine(plugin("mlp")[:size] + tail)


@thorough(500)
@given(
    data=st.binary(max_size=512),
    head=st.sampled_from([b"", b"\x7fELF", b"\x7fELF\x02\x01\x01", b"\x7fELF\x01\x02\x01"]),
)
def test_any_bytes(data: bytes, head: bytes):
    examine(head + data)


@thorough(100)
@given(bits=st.sampled_from([32, 64]), order=st.sampled_from(["little", "big"]), seed=st.integers(0, 1 << 32))
def test_other_classes_and_byte_orders(elf_writer, bits: int, order: str, seed: int):
    numbers = random.Random(seed)
    writer = elf_writer(
        bits,
        order,
        20,
        undefined=[("strlen", 2)],
        defined=[f"f{number}" for number in range(20)],
        versions={"libc.so.6": [("GLIBC_2.34", 2)]},
        needed=["libc.so.6"],
        hashes=numbers.choice([("gnu",), ("sysv",), ("gnu", "sysv"), ()]),
    )
    original = writer.build()
    for _ in range(10):
        data = bytearray(original)
        for _ in range(numbers.randrange(1, 20)):
            data[numbers.randrange(len(data))] = numbers.choice((0, 1, 0xFF, numbers.randrange(256)))
        examine(bytes(data))
