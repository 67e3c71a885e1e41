"""The reader of ``.pte`` and ``.ptd`` files against ExecuTorch's own serializer."""

from __future__ import annotations

import importlib
import random
import struct
from pathlib import Path

import pytest

from aoti_abi.codes import dtype_name
from aoti_abi.errors import AotiError
from aoti_inspect.artifacts import open_artifact

from .conftest import FIXTURES

program_module = importlib.import_module("executorch.exir._serialize._program")
schema = importlib.import_module("executorch.exir.schema")

PROGRAMS = sorted(FIXTURES.glob("*.pte"))


def theirs(data: bytes) -> dict:
    """Return what ExecuTorch's reader finds, in a form that both sides can be brought to."""
    file = program_module.deserialize_pte_binary(data)
    methods = {}
    for plan in file.program.execution_plan:
        calls = [
            instruction.instr_args
            for chain in plan.chains
            for instruction in chain.instructions
            if isinstance(instruction.instr_args, schema.DelegateCall)
        ]
        kernels = [
            instruction.instr_args.op_index
            for chain in plan.chains
            for instruction in chain.instructions
            if isinstance(instruction.instr_args, schema.KernelCall)
        ]
        names = [f"{op.name or ''}.{op.overload}" if op.overload else op.name or "" for op in plan.operators]
        methods[plan.name] = {
            "inputs": [value(plan.values[index]) for index in plan.inputs],
            "outputs": [value(plan.values[index]) for index in plan.outputs],
            "operators": list(dict.fromkeys(names[index] for index in kernels)),
            "delegates": [
                (
                    delegate.id or "",
                    [(spec.key or "", bytes(spec.value or b"")) for spec in delegate.compile_specs],
                    [list(call.args) for call in calls if call.delegate_index == number],
                )
                for number, delegate in enumerate(plan.delegates)
            ],
        }
    store = file.named_data
    named = {}
    if store is not None:
        named = {key: bytes(store.buffers[entry.buffer_index]) for key, entry in store.pte_data.items()}
    return {"methods": methods, "named": named}


def value(entry: object) -> object:
    tensor = entry.val
    if not isinstance(tensor, schema.Tensor):
        return None
    return dtype_name(int(tensor.scalar_type)), tuple(tensor.sizes), tuple(tensor.dim_order)


def ours(data: bytes) -> dict:
    with open_artifact("x.pte", content=data, data=()) as artifact:
        methods = {}
        for name, model in artifact.models.items():
            methods[name] = {
                "inputs": [flat(entry) for entry in model.inputs],
                "outputs": [flat(entry) for entry in model.outputs],
                # Theirs drops instructions of a kind that it does not know; ours names them.
                "operators": [name for name in model.operators if not name.startswith("instruction ")],
                "delegates": sorted(
                    (
                        plugin.delegate.id,
                        list(plugin.delegate.compile_specs),
                        [[argument.value for argument in call] for call in plugin.delegate.calls],
                    )
                    for plugin in model.plugins
                ),
                "others": list(model.other_delegates),
                "problems": len(model.problems),
            }
        return {
            "methods": methods,
            "named": {key: bytes(blob.view()) for key, blob in artifact.named_data.items()},
        }


def flat(entry) -> object:
    return (entry.dtype, entry.sizes, entry.dim_order) if entry.kind == "tensor" else None


def compare(mine: dict, other: dict) -> None:
    assert mine["named"] == other["named"]
    assert list(mine["methods"]) == list(other["methods"])
    for name, method in mine["methods"].items():
        reference = other["methods"][name]
        for part in ("inputs", "outputs", "operators"):
            assert method[part] == reference[part]
        found = method["delegates"]
        assert len(found) + len(method["others"]) + method["problems"] == len(reference["delegates"])
        assert all(delegate in reference["delegates"] for delegate in found)


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.name)
def test_programs_are_read_alike(path: Path):
    data = path.read_bytes()
    compare(ours(data), theirs(data))


@pytest.mark.parametrize("path", sorted(FIXTURES.glob("*.ptd")), ids=lambda path: path.name)
def test_tensor_files_are_read_alike(path: Path):
    serialize = importlib.import_module("executorch.extension.flat_tensor.serialize.serialize")
    cord = importlib.import_module("executorch.exir._serialize._cord")
    payload = serialize.FlatTensorSerializer().deserialize(cord.Cord(path.read_bytes()))
    with open_artifact(str(path)) as artifact:
        found = {key: bytes(blob.view()) for key, blob in artifact.named_data.items()}
    assert found == {
        key: bytes(payload.buffers[entry.buffer_index]) for key, entry in payload.named_data.items()
    }


@pytest.mark.fuzz
@pytest.mark.parametrize("seed", range(4))
def test_what_both_accept_both_read_alike(seed: int):
    """Mutations that their reader accepts: ours refuses with an error of its own, or reads the same."""
    chance = random.Random(seed)
    agreed = refused = 0
    for _ in range(250):
        data = bytearray(chance.choice(PROGRAMS).read_bytes())
        for _ in range(chance.choice((1, 1, 2))):
            if chance.random() < 0.5:
                data[chance.randrange(len(data))] = chance.randrange(256)
            else:
                start = chance.randrange(0, len(data) - 4) & ~3
                struct.pack_into("<I", data, start, chance.choice((0, 1, 4, 8, 40, len(data), 2**32 - 1)))
        try:
            mine = ours(bytes(data))
        except AotiError:
            refused += 1
            continue
        try:
            other = theirs(bytes(data))
        except Exception:  # noqa: BLE001 - their reader has no errors of its own
            continue
        compare(mine, other)
        agreed += 1
    assert agreed > 40
    assert refused > 40


def test_programs_of_every_layout_that_the_serializer_has():
    """Inline and segmented payloads, and alignments that move the header's end."""
    store_module = importlib.import_module("executorch.exir._serialize._named_data_store")
    base = program_module.deserialize_pte_binary((FIXTURES / "aoti_multimethod_external.pte").read_bytes())
    for segmented in (True, False):
        for alignment in (16, 64, 4096):
            store = store_module.NamedDataStore()
            for number, (key, entry) in enumerate(base.named_data.pte_data.items()):
                content = bytes(base.named_data.buffers[entry.buffer_index])
                store.add_named_data(key, content, alignment=16 << number)
            file = program_module.PTEFile(
                program=base.program, named_data=store.get_named_data_store_output()
            )
            data = bytes(
                program_module.serialize_pte_binary(
                    file,
                    extract_delegate_segments=segmented,
                    segment_alignment=alignment,
                    delegate_alignment=alignment,
                )
            )
            compare(ours(data), theirs(data))
