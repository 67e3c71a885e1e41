"""The checked reader of FlatBuffers: its bounds, its budget, and what it keeps out of the process."""

from __future__ import annotations

import subprocess
import sys

import pytest

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


def test_reading_a_program_does_not_import_numpy(artifacts):
    code = (
        "import sys; from aoti_inspect.artifacts import open_artifact\n"
        f"open_artifact({str(artifacts / 'aoti_two_keys.pte')!r}).close()\n"
        "loaded = {'numpy', 'flatbuffers', 'zipfile', 'dataclasses', 'json', 'torch'} & set(sys.modules)\n"
        "print(sorted(loaded))\n"
        "import flatbuffers; print(flatbuffers.encode.np is not None)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "True"]
