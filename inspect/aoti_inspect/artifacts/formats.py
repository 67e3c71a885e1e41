"""The formats of artifacts. A new one is a module with its reader, and a row here.

A reader gets the open file, and what lies beside it (`aoti_inspect.artifacts.sidecars.Beside`); the artifact
that it returns closes the file.
"""

from __future__ import annotations

from aoti_abi.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from aoti_inspect.artifacts.artifact import Artifact
    from aoti_inspect.artifacts.sidecars import Beside
    from aoti_inspect.source import Source


class Format(NamedTuple):
    """One kind of file that holds plugins.

    Attributes:
        name: a stable identifier.
        suffixes: names in a folder that are taken for one, in lower case.
        magics: how one begins: offset and bytes, any of them.
        reader: its reader, as ``module:function``.
        nested: those of the suffixes that are looked for in folders and archives too.
    """

    name: str
    suffixes: tuple[str, ...]
    magics: tuple[tuple[int, bytes], ...]
    reader: str
    nested: tuple[str, ...] = ()

    def read(self, source: Source, beside: Beside) -> Artifact:
        """Call the reader, whose module is imported for it."""
        module, _, function = self.reader.partition(":")
        # importlib would be one more import on the way of each plugin.
        read: Callable[[Source, Beside], Artifact] = getattr(
            __import__(module, fromlist=[function]), function
        )
        return read(source, beside)


ZIP = Format(
    "zip",
    (".pt2", ".whl", ".zip"),
    ((0, b"PK\x03\x04"), (0, b"PK\x05\x06")),
    "aoti_inspect.artifacts.zip_file:read_zip",
    (".pt2",),
)
FORMATS = (
    Format("plugin", (".so",), ((0, b"\x7fELF"),), "aoti_inspect.artifacts.so_file:read_so_file"),
    ZIP,
    # Programs and tensors of any version: the reader says which it knows.
    Format(
        "pte",
        (".pte",),
        tuple((4, b"ET%d" % digit) for digit in range(10)),
        "aoti_inspect.artifacts.pte:read_pte",
        (".pte",),
    ),
    Format(
        "ptd",
        (".ptd",),
        tuple((4, b"FT%d" % digit) for digit in range(10)),
        "aoti_inspect.artifacts.ptd:read_ptd",
    ),
)
#: Bytes from a file's start that `find_format` wants to see.
MAGIC_BYTES = 8
#: Names of files that are artifacts, and of those that are looked for inside folders and archives.
SUFFIXES = tuple(suffix for entry in FORMATS for suffix in entry.suffixes)
NESTED_SUFFIXES = tuple(suffix for entry in FORMATS for suffix in entry.nested)


def find_format(head: bytes) -> Format | None:
    """Return the format of a file by its first `MAGIC_BYTES`, or None."""
    for entry in FORMATS:
        for offset, magic in entry.magics:
            if head.startswith(magic, offset):
                return entry
    return None


def is_library_name(name: str) -> bool:
    """Whether a file is called a shared library: ``model.so``, ``libx.so.2``."""
    base = name.rpartition("/")[2].lower()
    return base.endswith(".so") or ".so." in base


def is_artifact_name(name: str) -> bool:
    """Whether a file in a folder is taken for an artifact: ``model.so``, ``libx.so.2``, ``model.pt2``, ..."""
    return name.lower().endswith(SUFFIXES) or is_library_name(name)
