"""Tensors that ``torch.save`` wrote, read without PyTorch and without executing the pickle.

The format is a zip archive with one folder, in it ``data.pkl``, ``byteorder`` and ``data/KEY`` for each
storage (``torch/serialization.py``).
"""

from __future__ import annotations

from aoti_abi.errors import InvalidProgram, NotSupported
from aoti_abi.records import TYPE_CHECKING
from aoti_inspect.artifacts.pickle_machine import Interpreter
from aoti_inspect.artifacts.zip_archive import ZipArchive

if TYPE_CHECKING:
    from aoti_inspect.source import Source

#: A description of tensors; their data is not in it.
_MAX_PICKLE = 16 << 20


class TensorArchive:
    """An archive that ``torch.save`` wrote.

    Attributes:
        content: the saved object: a `SavedTensor`, or tuples, lists and dicts of them and of plain values.

    Raises:
        InvalidProgram: the archive or its pickle is damaged, or a tensor reaches past its storage.
        NotSupported: it holds something else than tensors in plain containers, or is big-endian.
    """

    def __init__(self, source: Source) -> None:
        name = source.name
        self._archive = ZipArchive(source)
        pickles = [member for member in self._archive.names() if member.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise InvalidProgram("this is not what torch.save writes: it has no data.pkl", path=name)
        self._root = pickles[0].removesuffix("data.pkl")
        order = f"{self._root}byteorder"
        if order in self._archive and bytes(self._archive.read(order, limit=64)).strip() != b"little":
            raise NotSupported("its tensors are big-endian", path=name)
        data = bytes(self._archive.read(pickles[0], limit=_MAX_PICKLE))
        self.content = Interpreter(data, f"{name}!{pickles[0]}", self._storage_size).run()

    def storage(self, key: str) -> memoryview:
        """Return the bytes of a storage, as a part of the archive's.

        Raises:
            NotFound: there is no such storage.
        """
        return self._archive.read(f"{self._root}data/{key}")

    def _storage_size(self, key: str) -> int:
        return self._archive.member(f"{self._root}data/{key}").size
