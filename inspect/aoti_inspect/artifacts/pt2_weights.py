"""Weights of a ``.pt2`` that lie in it one by one (``package_constants_on_disk_format = "pickle_weights"``).

``weights_config.json`` maps each constant to ``[file, shape, stride, offset]``; the file, in
``data/weights/``, is what ``torch.save`` wrote for a tensor that covers the whole storage. Constants with the
same file share it. PyTorch binds them only when asked: ``load_pt2(..., load_weights_from_disk=True)``.
"""

from __future__ import annotations

from aoti_abi.codes import DTYPES_BY_NAME
from aoti_abi.errors import InvalidProgram
from aoti_abi.records import TYPE_CHECKING, NamedTuple
from aoti_inspect.artifacts.external_weights import (
    ExternalWeights,
    MissingWeights,
    TensorWeights,
    WeightTensor,
)
from aoti_inspect.artifacts.package_fact import PackageFact
from aoti_inspect.artifacts.pickle_machine import SavedTensor
from aoti_inspect.artifacts.tensor_archive import TensorArchive

if TYPE_CHECKING:
    from aoti_inspect.artifacts.members import Members

_MAX_DIMENSIONS = 64


class _Entry(NamedTuple):
    file: str
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


def tensor_weights(
    members: Members, folder: str, config: object, label: str, noted: list[PackageFact]
) -> ExternalWeights:
    """Return the weights that a configuration lists; their archives are opened when they are asked for.

    Raises:
        InvalidProgram: the configuration has another form.
    """
    entries = _parse(config, label)
    if not entries:
        return ExternalWeights()
    files = {entry.file: f"{folder}{entry.file}" for entry in entries.values()}
    absent = sorted(file for file, member in files.items() if not members.has(member))
    if absent:
        noted.append(PackageFact("absent-weight-files", tuple(absent), numbers=(len(files),)))
        return MissingWeights(f"{folder}{absent[0]}", automatic=False)
    return TensorWeights(
        label,
        _Reader(members, files, entries, label),
        size=sum(members.size(member) for member in files.values()),
        automatic=False,
    )


def _parse(config: object, label: str) -> dict[str, _Entry]:
    if not isinstance(config, dict):
        raise InvalidProgram("it is not a JSON object", path=label)
    entries: dict[str, _Entry] = {}
    for fqn, value in config.items():
        match value:
            case [str() as file, list() as sizes, list() as strides, int() as offset]:
                entry = _Entry(file, _numbers(sizes, fqn, label), _numbers(strides, fqn, label), offset)
            case _:
                raise InvalidProgram(f"the entry of {fqn!r} is not [file, shape, stride, offset]", path=label)
        if len(entry.sizes) != len(entry.strides) or offset < 0:
            raise InvalidProgram(f"the entry of {fqn!r} has an impossible shape", path=label)
        entries[fqn] = entry
    return entries


def _numbers(values: list[object], fqn: str, label: str) -> tuple[int, ...]:
    numbers = tuple(value for value in values if isinstance(value, int) and 0 <= value < 1 << 63)
    if len(numbers) != len(values) or len(numbers) > _MAX_DIMENSIONS:
        raise InvalidProgram(f"the entry of {fqn!r} has an impossible shape", path=label)
    return numbers


class _Reader:
    """Opens the archives when something of theirs is asked for."""

    def __init__(
        self, members: Members, files: dict[str, str], entries: dict[str, _Entry], label: str
    ) -> None:
        self._members = members
        self._files = files
        self._entries = entries
        self._label = label
        self._described: dict[str, SavedTensor] = {}

    def tensors(self) -> tuple[WeightTensor, ...]:
        """Return every constant: the dtype is its archive's, the view the configuration's."""
        return tuple(self._tensor(fqn, entry) for fqn, entry in self._entries.items())

    def storage(self, key: str) -> memoryview:
        """Return the bytes of one file's storage."""
        return self._open(key).storage(self._saved(key).storage)

    def _tensor(self, fqn: str, entry: _Entry) -> WeightTensor:
        saved = self._saved(entry.file)
        if 0 not in entry.sizes:
            last = entry.offset + sum(
                (n - 1) * step for n, step in zip(entry.sizes, entry.strides, strict=True)
            )
            needed = (last + 1) * DTYPES_BY_NAME[saved.dtype].itemsize
            if needed > saved.storage_nbytes:
                raise InvalidProgram(
                    f"{fqn!r} reaches to byte {needed} of a storage of {saved.storage_nbytes}",
                    path=self._label,
                )
        return WeightTensor(
            fqn, saved.dtype, entry.sizes, entry.strides, entry.offset, None, entry.file, saved.storage_nbytes
        )

    def _saved(self, file: str) -> SavedTensor:
        """Return what one file describes; it is kept, but the views that it was read from are not."""
        if file not in self._described:
            content = self._open(file).content
            if not isinstance(content, SavedTensor):
                raise InvalidProgram("it is not one tensor", path=self._members.label(self._files[file]))
            self._described[file] = content
        return self._described[file]

    def _open(self, file: str) -> TensorArchive:
        return TensorArchive(self._members.open(self._files[file]))
