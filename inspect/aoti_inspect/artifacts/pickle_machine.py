"""Interpreting the pickle of a saved tensor without executing it.

A pickle is a program, and loading one from an untrusted file runs whatever it says. This interpreter knows
only the opcodes and the four functions that a saved tensor is made of, and calls nothing: a tensor becomes a
`SavedTensor` that says where its bytes are. Anything else is refused by name. Opcodes: Python's
``pickletools``, protocols 2 to 5.

(``pickletools.genops`` as tokenizer would save four short methods, not the table of what opcodes do; it also
decodes the arguments of the many opcodes that are refused here, and its import pulls in ``pickle``.)
"""

from __future__ import annotations

import struct

from aoti_abi.codes import DTYPES_BY_NAME
from aoti_abi.errors import InvalidProgram, NotSupported
from aoti_abi.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

_MAX_MEMO = 1 << 20

_STORAGES = {dtype.storage: dtype for dtype in DTYPES_BY_NAME.values() if dtype.storage}


class SavedTensor(NamedTuple):
    """A tensor in an archive of ``torch.save``.

    Attributes:
        dtype: PyTorch's name of the element type.
        sizes, strides, offset: in elements.
        storage: the storage's key in its archive.
        storage_nbytes: bytes of the storage.
        device: where it was when it was saved ("cpu", "cuda:0").
    """

    dtype: str
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    storage: str
    storage_nbytes: int
    device: str


class _Name(NamedTuple):
    """A global that the pickle mentions; nothing is looked up or called."""

    module: str
    name: str


class _Storage(NamedTuple):
    dtype: str
    key: str
    device: str
    nbytes: int


class _Mark:
    """The MARK object."""


_MARK = _Mark()


class Interpreter:
    """One run over one pickle. Work and memory are proportional to its length."""

    def __init__(self, data: bytes, name: str, storage_size: Callable[[str], int]) -> None:
        self.data = data
        self.name = name
        self.position = 0
        self.stack: list[object] = []
        self.memo: dict[int, object] = {}
        self.storage_size = storage_size

    def run(self) -> object:
        """Interpret the pickle and return the object that it describes."""
        while True:
            opcode = self.take(1)
            if opcode == b".":
                result = self.pop()
                if self.stack:
                    raise self.damaged("values are left over")
                return result
            action = _OPCODES.get(opcode)
            if action is None:
                raise NotSupported(
                    f"its pickle uses opcode {opcode!r} at byte {self.position - 1}, which no tensor needs; "
                    "it was not executed",
                    path=self.name,
                    hint="save plain tensors, or a dict of them",
                )
            action(self)

    def damaged(self, why: str) -> InvalidProgram:
        """Return the error for a pickle that can't be."""
        return InvalidProgram(f"its pickle is damaged at byte {self.position}: {why}", path=self.name)

    def take(self, size: int) -> bytes:
        """Consume bytes."""
        part = self.data[self.position : self.position + size]
        if len(part) != size:
            raise self.damaged("it ends too soon")
        self.position += size
        return part

    def number(self, layout: str) -> int:
        """Consume a number."""
        return int(struct.unpack(layout, self.take(struct.calcsize(layout)))[0])

    def line(self) -> str:
        """Consume a line of text."""
        end = self.data.find(b"\n", self.position)
        if end < 0:
            raise self.damaged("a name has no end")
        raw = self.take(end + 1 - self.position)[:-1]
        return raw.decode("utf-8", "surrogateescape")

    def push(self, value: object) -> None:
        """Put a value on the stack."""
        self.stack.append(value)

    def pop(self) -> object:
        """Take the topmost value."""
        if not self.stack or self.stack[-1] is _MARK:
            raise self.damaged("a value is missing")
        return self.stack.pop()

    def pop_to_mark(self) -> list[object]:
        """Take the values above the last MARK, and the mark."""
        values: list[object] = []
        while self.stack:
            value = self.stack.pop()
            if value is _MARK:
                values.reverse()
                return values
            values.append(value)
        raise self.damaged("a mark is missing")

    def remember(self, index: int) -> None:
        """Keep the topmost value under a number."""
        if len(self.memo) >= _MAX_MEMO:
            raise self.damaged("it remembers too much")
        value = self.pop()
        self.memo[index] = value
        self.push(value)

    def recall(self, index: int) -> None:
        """Put a kept value on the stack."""
        if index not in self.memo:
            raise self.damaged(f"it recalls {index}, which it never remembered")
        self.push(self.memo[index])

    def append(self, values: list[object]) -> None:
        """Append to the list on top of the stack."""
        target = self.pop()
        if not isinstance(target, list):
            raise self.damaged("it appends to what is not a list")
        target.extend(values)
        self.push(target)

    def set_items(self, values: list[object]) -> None:
        """Set items of the dict on top of the stack."""
        target = self.pop()
        if not isinstance(target, dict) or len(values) % 2:
            raise self.damaged("it sets items of what is not a dict")
        for key, value in zip(values[::2], values[1::2], strict=True):
            # A tuple as key would have to be hashed, which nested ones can make take forever.
            if not isinstance(key, str | int):
                raise NotSupported(
                    "its pickle has a dict whose keys are neither text nor numbers", path=self.name
                )
            target[key] = value
        self.push(target)

    def global_name(self, module: object, name: object) -> None:
        """Put a name on the stack; nothing is imported."""
        if not isinstance(module, str) or not isinstance(name, str):
            raise self.damaged("a name is not text")
        known = (module, name) in _CALLS or (
            module == "torch" and (name in _STORAGES or name in DTYPES_BY_NAME)
        )
        if not known and (module, name) != ("torch.storage", "UntypedStorage"):
            raise NotSupported(
                f"its pickle would call {module}.{name}; it was not executed",
                path=self.name,
                hint="only tensors, parameters and plain containers are read from packages",
            )
        self.push(_Name(module, name))

    def persistent(self) -> None:
        """Turn a persistent id into a reference to a storage."""
        match self.pop():
            case ("storage", _Name() as kind, str() as key, str() as device, int() as count):
                if kind.name == "UntypedStorage":
                    dtype, itemsize = "untyped", 1
                elif kind.name in _STORAGES:
                    dtype, itemsize = _STORAGES[kind.name].name, _STORAGES[kind.name].itemsize
                else:
                    raise self.damaged(f"{kind.module}.{kind.name} is no storage")
                nbytes = count * itemsize
                held = self.storage_size(key)
                if nbytes != held:
                    raise self.damaged(f"storage {key!r} should have {nbytes} bytes and has {held}")
                self.push(_Storage(dtype, key, device, nbytes))
            case _:
                raise self.damaged("it refers to something that is no storage")

    def reduce(self) -> None:
        """Do what one of the known functions would do; nothing is called."""
        arguments, function = self.pop(), self.pop()
        if not isinstance(function, _Name) or not isinstance(arguments, tuple):
            raise self.damaged("it calls what is no function")
        action = _CALLS.get((function.module, function.name))
        if action is None:
            raise self.damaged(f"{function.module}.{function.name} is no function")
        self.push(action(self, arguments))

    def new_dict(self, arguments: tuple[object, ...]) -> dict[object, object]:
        """Stand for ``OrderedDict()``."""
        if arguments:
            raise self.damaged("an OrderedDict is made of something")
        return {}

    def parameter(self, arguments: tuple[object, ...]) -> object:
        """Stand for ``_rebuild_parameter(tensor, ...)``."""
        if not arguments or not isinstance(arguments[0], SavedTensor):
            raise self.damaged("a parameter is made of what is no tensor")
        return arguments[0]

    def tensor(self, arguments: tuple[object, ...]) -> SavedTensor:
        """Take ``(storage, offset, sizes, strides, requires_grad, hooks, dtype)``; version 2 has no dtype."""
        if len(arguments) < 6 or not isinstance(arguments[0], _Storage):
            raise self.damaged("a tensor is made of something else than a storage")
        storage = arguments[0]
        offset, sizes, strides = arguments[1:4]
        dtype = storage.dtype
        if dtype == "untyped":
            kind = arguments[6] if len(arguments) > 6 else None
            if not isinstance(kind, _Name) or kind.name not in DTYPES_BY_NAME:
                raise self.damaged("a tensor has no element type")
            dtype = kind.name
        shape, steps = self.numbers(sizes), self.numbers(strides)
        if not isinstance(offset, int) or offset < 0 or len(shape) != len(steps):
            raise self.damaged("a tensor has an impossible shape")
        if 0 not in shape:
            last = offset + sum((size - 1) * step for size, step in zip(shape, steps, strict=True))
            end = (last + 1) * DTYPES_BY_NAME[dtype].itemsize
            if end > storage.nbytes:
                raise self.damaged(f"a tensor reaches to byte {end} of a storage of {storage.nbytes}")
        return SavedTensor(dtype, shape, steps, offset, storage.key, storage.nbytes, storage.device)

    def numbers(self, values: object) -> tuple[int, ...]:
        """Return a shape or strides."""
        if not isinstance(values, tuple) or len(values) > 64:
            raise self.damaged("a shape is not a tuple of at most 64 numbers")
        result = []
        for value in values:
            if not isinstance(value, int) or not 0 <= value < 1 << 63:
                raise self.damaged("a shape has something else than a number in it")
            result.append(value)
        return tuple(result)

    def tuple_of(self, count: int) -> None:
        """Make a tuple of the topmost values."""
        self.push(tuple([self.pop() for _ in range(count)][::-1]))

    def text(self, length: int) -> None:
        """Consume text and put it on the stack."""
        self.push(self.take(length).decode("utf-8", "surrogateescape"))


_CALLS: dict[tuple[str, str], Callable[[Interpreter, tuple[object, ...]], object]] = {
    ("collections", "OrderedDict"): Interpreter.new_dict,
    ("torch._utils", "_rebuild_tensor_v2"): Interpreter.tensor,
    ("torch._utils", "_rebuild_tensor_v3"): Interpreter.tensor,
    ("torch._utils", "_rebuild_parameter"): Interpreter.parameter,
}

_OPCODES: dict[bytes, Callable[[Interpreter], None]] = {
    b"\x80": lambda run: None if run.take(1) <= b"\x05" else _refuse_protocol(run),  # PROTO
    b"\x95": lambda run: _ignore(run.take(8)),  # FRAME: a length that readers of streams use
    b"(": lambda run: run.push(_MARK),
    b"c": lambda run: run.global_name(run.line(), run.line()),
    b"\x93": lambda run: run.global_name(*[run.pop(), run.pop()][::-1]),  # STACK_GLOBAL
    b"X": lambda run: run.text(run.number("<I")),
    b"\x8c": lambda run: run.text(run.number("<B")),
    b"K": lambda run: run.push(run.number("<B")),
    b"M": lambda run: run.push(run.number("<H")),
    b"J": lambda run: run.push(run.number("<i")),
    b"\x8a": lambda run: run.push(int.from_bytes(run.take(run.number("<B")), "little", signed=True)),  # LONG1
    b"G": lambda run: run.push(struct.unpack(">d", run.take(8))[0]),
    b"N": lambda run: run.push(None),
    b"\x88": lambda run: run.push(True),  # NEWTRUE
    b"\x89": lambda run: run.push(False),  # NEWFALSE
    b"q": lambda run: run.remember(run.number("<B")),
    b"r": lambda run: run.remember(run.number("<I")),
    b"\x94": lambda run: run.remember(len(run.memo)),  # MEMOIZE
    b"h": lambda run: run.recall(run.number("<B")),
    b"j": lambda run: run.recall(run.number("<I")),
    b")": lambda run: run.push(()),
    b"\x85": lambda run: run.tuple_of(1),
    b"\x86": lambda run: run.tuple_of(2),
    b"\x87": lambda run: run.tuple_of(3),
    b"t": lambda run: run.push(tuple(run.pop_to_mark())),
    b"]": lambda run: run.push([]),
    b"a": lambda run: run.append([run.pop()]),
    b"e": lambda run: run.append(run.pop_to_mark()),
    b"}": lambda run: run.push({}),
    b"s": lambda run: run.set_items([run.pop(), run.pop()][::-1]),
    b"u": lambda run: run.set_items(run.pop_to_mark()),
    b"Q": Interpreter.persistent,
    b"R": Interpreter.reduce,
}


def _ignore(_part: bytes) -> None:
    """Take part of the pickle that has no effect here."""


def _refuse_protocol(run: Interpreter) -> None:
    raise NotSupported("its pickle has a protocol newer than 5", path=run.name)
