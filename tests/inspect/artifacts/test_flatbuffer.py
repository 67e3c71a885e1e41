"""The checked reader of FlatBuffers: its bounds, its budget, and that it agrees with `flatbuffers`."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aoti_abi.errors import InvalidProgram
from aoti_inspect.artifacts.flatbuffer import Buffer


def build() -> bytes:
    import flatbuffers

    builder = flatbuffers.Builder(0)
    name = builder.CreateString("name")
    builder.StartVector(4, 3, 4)
    for value in (3, -2, 1):
        builder.PrependInt32(value)
    numbers = builder.EndVector()
    builder.StartObject(1)
    builder.PrependInt32Slot(0, -7, 0)
    inner = builder.EndObject()
    builder.StartVector(4, 2, 4)
    for _ in range(2):
        builder.PrependUOffsetTRelative(inner)
    tables = builder.EndVector()
    builder.StartObject(6)
    builder.PrependUOffsetTRelativeSlot(0, name, 0)
    builder.PrependUOffsetTRelativeSlot(1, numbers, 0)
    builder.PrependUOffsetTRelativeSlot(2, tables, 0)
    builder.PrependUint64Slot(3, 1 << 60, 0)
    builder.PrependInt8Slot(4, -3, 0)
    root = builder.EndObject()
    builder.Finish(root)
    return bytes(builder.Output())


def test_fields_of_every_kind():
    root = Buffer(memoryview(build()), "x").root()
    assert root.text(0, "name") == "name"
    assert root.integers(1, "i32", "numbers") == (1, -2, 3)
    assert [table.integer(0, "i32") for table in root.tables(2, "tables")] == [-7, -7]
    assert root.table_in(2, 1, "tables").integer(0, "i32") == -7
    assert root.table_in(2, 2, "tables") is None
    assert root.integer(3, "u64") == 1 << 60
    assert root.integer(4, "i8") == -3
    assert (root.has(5), root.has(99), root.text(5, "x"), root.integer(99, "u32", 8)) == (
        False,
        False,
        None,
        8,
    )
    assert root.length(1, "numbers") == 3
    assert (root.octets(5, "x"), root.integers(5, "i32", "x"), list(root.tables(5, "x"))) == (None, (), [])


@pytest.mark.parametrize("size", range(len(build())))
def test_every_shorter_buffer_is_refused_or_read(size):
    data = build()[:size]
    try:
        root = Buffer(memoryview(data), "x").root()
        root.text(0, "name")
        root.integers(1, "i32", "numbers")
        list(root.tables(2, "tables"))
        root.octets(1, "octets")
    except InvalidProgram as error:
        assert "x" in str(error)


def visit(table, depth: int) -> None:
    for child in table.tables(0, "tables"):
        if depth:
            visit(child, depth - 1)


def test_structures_that_repeat_themselves_run_out_of_budget():
    """Each of 300 tables has the same vector of 300 tables: work that grows with a power of the size."""
    import flatbuffers

    builder = flatbuffers.Builder(0)
    vector = None
    for _ in range(4):
        tables = []
        for _ in range(300):
            builder.StartObject(1)
            if vector is not None:
                builder.PrependUOffsetTRelativeSlot(0, vector, 0)
            tables.append(builder.EndObject())
        builder.StartVector(4, len(tables), 4)
        for table in tables:
            builder.PrependUOffsetTRelative(table)
        vector = builder.EndVector()
    builder.StartObject(1)
    builder.PrependUOffsetTRelativeSlot(0, vector, 0)
    builder.Finish(builder.EndObject())
    buffer = Buffer(memoryview(bytes(builder.Output())), "x")
    with pytest.raises(InvalidProgram, match="over and over"):
        visit(buffer.root(), 4)


def test_reading_a_program_imports_nothing_heavy(artifacts):
    code = (
        "import sys; from aoti_inspect.artifacts import open_artifact\n"
        f"open_artifact({str(artifacts / 'aoti_two_keys.pte')!r}).close()\n"
        "loaded = {'numpy', 'flatbuffers', 'zipfile', 'dataclasses', 'json', 'torch'} & set(sys.modules)\n"
        "print(sorted(loaded))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]"]


KINDS = {"u8": (0, 8), "i8": (1, 8), "u32": (0, 32), "i32": (1, 32), "u64": (0, 64), "i64": (1, 64)}


def names_of(kind: str) -> str:
    """Return what the package calls a kind of integer."""
    return f"{'Int' if KINDS[kind][0] else 'Uint'}{KINDS[kind][1]}"


@st.composite
def fields(draw, depth=2):
    """Return the fields of a table: None (absent), or a kind and a value each."""
    kinds = [*KINDS, "text", "vector", "absent", *(("table", "tables") if depth else ())]
    found = []
    for kind in draw(st.lists(st.sampled_from(kinds), max_size=6)):
        if kind in KINDS:
            signed, bits = KINDS[kind]
            low = -(1 << bits - 1) if signed else 0
            found.append((kind, draw(st.integers(low, low + (1 << bits) - 1))))
        elif kind == "text":
            found.append((kind, draw(st.text(max_size=9))))
        elif kind == "vector":
            of = draw(st.sampled_from(list(KINDS)))
            signed, bits = KINDS[of]
            low = -(1 << bits - 1) if signed else 0
            numbers = draw(st.lists(st.integers(low, low + (1 << bits) - 1), max_size=4))
            found.append((f"vector of {of}", tuple(numbers)))
        elif kind == "table":
            found.append((kind, draw(fields(depth - 1))))
        elif kind == "tables":
            found.append((kind, draw(st.lists(fields(depth - 1), max_size=3))))
        else:
            found.append((kind, None))
    return found


def write(builder, table) -> int:
    """Write a table with the package; return where it is."""
    places = [reference(builder, kind, value) for kind, value in table]
    builder.StartObject(len(table))
    for slot, ((kind, value), place) in enumerate(zip(table, places, strict=True)):
        if kind in KINDS:
            # A default that is not the value: what equals its default is not stored.
            getattr(builder, f"Prepend{names_of(kind)}Slot")(slot, value, 1 if value == 0 else 0)
        elif place:
            builder.PrependUOffsetTRelativeSlot(slot, place, 0)
    return builder.EndObject()


def reference(builder, kind: str, value) -> int:
    if kind == "text":
        return builder.CreateString(value)
    if kind.startswith("vector of "):
        width = KINDS[kind[10:]][1] // 8
        builder.StartVector(width, len(value), width)
        for number in reversed(value):
            getattr(builder, f"Prepend{names_of(kind[10:])}")(number)
        return builder.EndVector()
    if kind == "table":
        return write(builder, value)
    if kind == "tables":
        places = [write(builder, table) for table in value]
        builder.StartVector(4, len(places), 4)
        for place in reversed(places):
            builder.PrependUOffsetTRelative(place)
        return builder.EndVector()
    return 0


def ours(table, shape) -> list:
    found = []
    for slot, (kind, value) in enumerate(shape):
        if not table.has(slot):
            found.append(None)
        elif kind in KINDS:
            found.append(table.integer(slot, kind))
        elif kind == "text":
            found.append(table.text(slot, "text"))
        elif kind.startswith("vector of "):
            numbers = table.integers(slot, kind[10:], "numbers")
            assert table.length(slot, "numbers") == len(numbers)
            found.append(numbers)
        elif kind == "table":
            found.append(ours(table.table(slot, "table"), value))
        elif kind == "tables":
            children = list(table.tables(slot, "tables"))
            found.append([ours(child, part) for child, part in zip(children, value, strict=False)])
            assert [table.table_in(slot, n, "tables").has(0) for n in range(len(children))] == [
                child.has(0) for child in children
            ]
        else:
            found.append("present")
    return found


def theirs(table, shape) -> list:
    """Read the same with the package's accessors, which check nothing."""
    from flatbuffers import number_types
    from flatbuffers.table import Table

    found = []
    for slot, (kind, value) in enumerate(shape):
        offset = table.Offset(4 + 2 * slot)
        if not offset:
            found.append(None)
        elif kind in KINDS:
            found.append(table.Get(getattr(number_types, f"{names_of(kind)}Flags"), table.Pos + offset))
        elif kind == "text":
            found.append(table.String(table.Pos + offset).decode("utf-8", "surrogateescape"))
        elif kind.startswith("vector of "):
            flags = getattr(number_types, f"{names_of(kind[10:])}Flags")
            start = table.Vector(offset)
            count = table.VectorLen(offset)
            found.append(tuple(table.Get(flags, start + n * flags.bytewidth) for n in range(count)))
        elif kind == "table":
            found.append(theirs(Table(table.Bytes, table.Indirect(table.Pos + offset)), value))
        elif kind == "tables":
            start, count = table.Vector(offset), table.VectorLen(offset)
            children = [Table(table.Bytes, table.Indirect(start + 4 * n)) for n in range(count)]
            found.append([theirs(child, part) for child, part in zip(children, value, strict=False)])
        else:
            found.append("present")
    return found


def built(shape) -> bytes:
    import flatbuffers

    builder = flatbuffers.Builder(0)
    builder.Finish(write(builder, shape))
    return bytes(builder.Output())


def root_of(data: bytes):
    from flatbuffers.table import Table

    return Table(data, int.from_bytes(data[:4], "little"))


@settings(max_examples=200, deadline=None)
@given(fields())
def test_what_the_package_writes_is_read_as_it_reads_it(shape):
    data = built(shape)
    found = ours(Buffer(memoryview(data), "x").root(), shape)
    assert found == theirs(root_of(data), shape)
    for (kind, value), got in zip(shape, found, strict=True):
        if kind not in {"table", "tables", "absent"}:
            assert got == value


@settings(max_examples=400, deadline=None)
@given(fields(), st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), min_size=1, max_size=3))
def test_damage_is_refused_or_read_as_the_package_reads_it(shape, changes):
    data = bytearray(built(shape))
    for position, value in changes:
        data[position % len(data)] = value
    try:
        found = ours(Buffer(memoryview(bytes(data)), "x").root(), shape)
    except InvalidProgram as error:
        assert "x" in str(error)
        return
    assert found == theirs(root_of(bytes(data)), shape)
