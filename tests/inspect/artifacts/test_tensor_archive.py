"""Archives of torch.save: the tensors they hold, and that nothing in them is ever executed."""

from __future__ import annotations

import io
import pickle
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aoti_abi.errors import AotiError, InvalidProgram, NotSupported
from aoti_inspect.artifacts.pickle_machine import Interpreter, SavedTensor
from aoti_inspect.artifacts.tensor_archive import TensorArchive
from aoti_inspect.source import BufferSource


def archive_of(data: bytes) -> TensorArchive:
    return TensorArchive(BufferSource(data, "weights.pt"))


def with_pickle(content: bytes, **others: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("archive/data.pkl", content)
        archive.writestr("archive/data/0", b"\0" * 64)
        for name, data in others.items():
            archive.writestr(f"archive/{name}", data)
    return buffer.getvalue()


def test_a_parameter_that_pytorch_packed(artifacts: Path):
    archive = archive_of((artifacts / "weight_0").read_bytes())
    assert archive.content == SavedTensor("float32", (32, 16), (16, 1), 0, "0", 2048, "cpu")
    storage = archive.storage("0")
    assert len(storage) == 2048
    assert bytes(storage) in (artifacts / "weight_0").read_bytes()


def walk(content: object, prefix=""):
    if isinstance(content, SavedTensor):
        yield prefix, content
    elif isinstance(content, dict):
        for key, value in content.items():
            yield from walk(value, f"{prefix}.{key}")
    elif isinstance(content, list | tuple):
        for index, value in enumerate(content):
            yield from walk(value, f"{prefix}.{index}")


def test_tensors_in_containers_agree_with_pytorch(tmp_path):
    import torch

    base = torch.arange(24, dtype=torch.int64)
    saved = {
        "plain": torch.randn(2, 3),
        "view": base.view(4, 6).t()[1:, ::2],
        "list": [torch.zeros(0, 3), torch.tensor(5, dtype=torch.bool)],
        "tuple": (torch.ones(3, dtype=torch.bfloat16), 7, "text", None, 1.5, True),
        "float8": torch.zeros(4, dtype=torch.float8_e4m3fn),
        "unsigned": torch.zeros(2, dtype=torch.uint16),
        "parameter": torch.nn.Parameter(torch.randn(3)),
        "complex": torch.zeros(2, dtype=torch.complex64),
    }
    for protocol in (2, 4, 5):
        path = tmp_path / f"saved{protocol}.pt"
        torch.save(saved, path, pickle_protocol=protocol)
        archive = archive_of(path.read_bytes())
        found = dict(walk(archive.content))
        for name, tensor in (
            ("plain", saved["plain"]),
            ("view", saved["view"]),
            ("list.0", saved["list"][0]),
        ):
            entry = found[f".{name}"]
            assert entry.sizes == tuple(tensor.shape)
            assert entry.strides == tensor.stride()
            assert entry.offset == tensor.storage_offset()
            assert f"torch.{entry.dtype}" == str(tensor.dtype)
            assert bytes(archive.storage(entry.storage)) == bytes(tensor.untyped_storage())
        assert found[".float8"].dtype == "float8_e4m3fn"
        assert found[".unsigned"].dtype == "uint16"
        assert archive.content["tuple"][1:] == (7, "text", None, 1.5, True)


def values_of(archive: TensorArchive, tensor: SavedTensor) -> object:
    """Return the elements of a tensor of int64, nested as ``tolist`` nests them."""
    elements = memoryview(bytes(archive.storage(tensor.storage))).cast("q")

    def part(at: int, axis: int) -> object:
        if axis == len(tensor.sizes):
            return elements[at]
        step = tensor.strides[axis]
        return [part(at + index * step, axis + 1) for index in range(tensor.sizes[axis])]

    return part(tensor.offset, 0)


@pytest.mark.torch
def test_slices_of_one_storage_have_the_values_that_pytorch_saved(tmp_path):
    import torch

    base = torch.arange(60, dtype=torch.int64)
    square = base[12:].view(6, 8)
    slices = {
        "part": base[7:19],
        "rows": square[2:4],
        "columns": square[:, 3:5],
        "steps": square[1::2, ::3],
        "transposed": square.t(),
        "permuted": base.view(3, 4, 5).permute(2, 0, 1)[1:],
        "diagonal": square.diagonal(),
        "expanded": base[5].expand(2, 3),
        "last": base[59],
        "nothing": base[60:],
    }
    path = tmp_path / "slices.pt"
    torch.save(slices, path)
    archive = archive_of(path.read_bytes())
    assert archive.content.keys() == slices.keys()
    for name, tensor in slices.items():
        found = archive.content[name]
        assert (found.offset, found.sizes, found.strides) == (
            tensor.storage_offset(),
            tuple(tensor.shape),
            tensor.stride(),
        )
        assert values_of(archive, found) == tensor.tolist(), name
    # What shared its bytes still does.
    assert {found.storage for found in archive.content.values()} == {"0"}
    assert {found.storage_nbytes for found in archive.content.values()} == {480}


class Boom:
    ran = False

    def __reduce__(self):
        return (_boom, ())


def _boom():
    Boom.ran = True


def test_a_pickle_that_would_run_something_is_refused_by_name():
    for protocol in (0, 2, 4, 5):
        with pytest.raises(NotSupported, match="not executed"):
            archive_of(with_pickle(pickle.dumps(Boom(), protocol)))
    assert not Boom.ran


@pytest.mark.parametrize(
    "content",
    [b"cos\nsystem\n(S'true'\ntR.", b"\x80\x02cbuiltins\neval\n.", b"\x80\x04\x8c\x02os\x8c\x06system\x93."],
)
def test_names_outside_the_list_are_refused(content):
    with pytest.raises(NotSupported, match="not executed"):
        archive_of(with_pickle(content))


TENSOR = (
    b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storagectorch\nFloatStorage\n"
    b"X\x01\0\0\x000X\x03\0\0\0cpuK\x10tQK%cK%c\x85K%c\x85\x89ccollections\nOrderedDict\n)RtR."
)


def tensor(offset=0, size=16, stride=1) -> bytes:
    parts = TENSOR.split(b"%c")
    return parts[0] + bytes([offset]) + parts[1] + bytes([size]) + parts[2] + bytes([stride]) + parts[3]


def test_a_tensor_by_hand():
    assert archive_of(with_pickle(tensor())).content == SavedTensor("float32", (16,), (1,), 0, "0", 64, "cpu")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (tensor(offset=1), "reaches to byte 68"),
        (tensor(stride=2), "reaches to byte 124"),
        (tensor().replace(b"K\x10tQ", b"K\x11tQ"), "should have 68 bytes and has 64"),
        (tensor().replace(b"FloatStorage", b"OrderedDictX"), "not executed|OrderedDictX"),
        (b"\x80\x02", "ends too soon"),
        (b"\x80\x02NN.", "left over"),
        (b"\x80\x02t.", "mark is missing"),
        (b"\x80\x02h\x07.", "never remembered"),
        (b"\x80\x02NR.", "value is missing|calls what is no function"),
        (b"\x80\x02Na.", "value is missing|not a list"),
        (b"\x80\x02NNNs.", "not a dict"),
        (b"\x80\x02NQ.", "no storage"),
        (b"\x80\x02X\xff\xff\xff\xff.", "ends too soon"),
        (b"\x80\x02ctorch", "no end"),
    ],
)
def test_damaged_pickles(content, words):
    with pytest.raises(AotiError, match=words):
        archive_of(with_pickle(content))


def test_keys_that_would_have_to_be_hashed_deeply_are_refused():
    nest = b"\x80\x02})" + b"\x85" * 50 + b"Ns."
    with pytest.raises(NotSupported, match="neither text nor numbers"):
        archive_of(with_pickle(nest))


def test_a_protocol_from_the_future():
    with pytest.raises(NotSupported, match="protocol"):
        archive_of(with_pickle(b"\x80\x09N."))


def test_big_endian_archives_are_refused():
    with pytest.raises(NotSupported, match="big-endian"):
        archive_of(with_pickle(b"\x80\x02N.", byteorder=b"big"))


def test_an_archive_without_a_pickle():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("x", b"")
    with pytest.raises(InvalidProgram, match=r"data\.pkl"):
        archive_of(buffer.getvalue())


@settings(max_examples=300)
@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=4), st.binary(max_size=30))
def test_mutated_pickles_are_read_or_refused(changes, tail):
    data = bytearray(tensor())
    for position, value in changes:
        data[position % len(data)] = value
    try:
        Interpreter(bytes(data) + tail, "data.pkl", lambda key: 64).run()
    except AotiError as error:
        assert str(error)
