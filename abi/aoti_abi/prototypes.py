"""ctypes prototypes, derived from the C declarations that the tables hold.

A small strict parser turns ``AtenTensorHandle* input_handles`` into a ctypes type. It knows the types that
the two APIs use and refuses every other, so that no declaration is bound with a guess. Text that a callee
hands out (``const char**``, a returned ``const char*``) is bound as an address: read it with
`aoti_abi.memory.read_string`, which cannot fault, where ctypes would dereference it.
"""

from __future__ import annotations

import ctypes
import re
from functools import lru_cache

from aoti_abi import structs
from aoti_abi.container_api import CONTAINER_API
from aoti_abi.errors import NotFound, NotSupported
from aoti_abi.records import TYPE_CHECKING, NamedTuple
from aoti_abi.shim_catalogue import signature

if TYPE_CHECKING:
    from collections.abc import Container
    from typing import Any

_VALUES: dict[str, Any] = {
    "bool": ctypes.c_bool,
    "double": ctypes.c_double,
    "float": ctypes.c_float,
    "int": ctypes.c_int,
    "unsigned": ctypes.c_uint,
    "int8_t": ctypes.c_int8,
    "int16_t": ctypes.c_int16,
    "int32_t": ctypes.c_int32,
    "int64_t": ctypes.c_int64,
    "uint8_t": ctypes.c_uint8,
    "uint16_t": ctypes.c_uint16,
    "uint32_t": ctypes.c_uint32,
    "uint64_t": ctypes.c_uint64,
    "size_t": ctypes.c_size_t,
    "AOTIRuntimeError": structs.AOTIRuntimeError,
    "AOTITorchError": structs.AOTITorchError,
    "StableIValue": structs.StableIValue,
    "AOTInductorConstantMapEntry": structs.AOTInductorConstantMapEntry,
    # Pointers to functions: passed on, never called from here.
    "ParallelFunc": ctypes.c_void_p,
    "aoti_torch_mps_command_block_callback_t": ctypes.c_void_p,
}
# Only pointers to these cross the ABI, and only their address is passed on.
_OPAQUE = frozenset(
    ("void", "c10::Half", "c10::BFloat16", "c10::complex<float>", "AOTInductorArrayRefTensor")
)

_DECLARATION = re.compile(r"([\w:<>*& ]+?[ *])(\w+)\((.*)\)\Z", re.DOTALL)
_PARAMETER = re.compile(r"((?:const )?[\w:]+(?:<\w+>)?)( ?(?:\* ?)*)(\w+)\Z")
_FUNCTION_POINTER = re.compile(r"void \(\*\w+\)\([^()]*\)\Z")


class Prototype(NamedTuple):
    """How to call a C function through ctypes: ``restype`` (None for void) and ``argtypes``."""

    restype: Any
    argtypes: tuple[Any, ...]


@lru_cache(maxsize=256)
def _type(base: str, stars: int) -> Any:
    """Return the ctypes type of a parameter; ``base`` has no qualifier."""
    if stars and base == "char":
        return ctypes.c_char_p if stars == 1 else ctypes.POINTER(ctypes.c_void_p)
    if stars and base in _OPAQUE:
        return ctypes.c_void_p if stars == 1 else ctypes.POINTER(_type(base, stars - 1))
    value = ctypes.c_void_p if base.endswith("Handle") else _VALUES.get(base)
    if value is None:
        raise NotSupported(f"no ctypes type for the C type {base + '*' * stars!r}")
    for _ in range(stars):
        value = ctypes.POINTER(value)
    return value


@lru_cache(maxsize=1024)
def _parameter(text: str) -> Any:
    if _FUNCTION_POINTER.match(text):
        return ctypes.c_void_p
    match = _PARAMETER.match(text)
    if match is None:
        raise NotSupported(f"cannot bind the C parameter {text!r}")
    return _type(match[1].removeprefix("const "), match[2].count("*"))


def _split_parameters(text: str) -> list[str]:
    """Split at the commas outside parentheses: a pointer to a function has commas of its own."""
    parts, depth, start = [], 0, 0
    for index, char in enumerate(text):
        if char == "(":
            depth += 1
        elif char == ")":
            depth -= 1
        elif char == "," and not depth:
            parts.append(text[start:index])
            start = index + 1
    parts.append(text[start:])
    return [part.strip() for part in parts if part.strip() not in ("", "void")]


def parse_declaration(declaration: str) -> tuple[str, Prototype]:
    """Return the name and the prototype of one C declaration, as ``int32_t f(const char* name, size_t n)``.

    Raises:
        NotSupported: it has a C++ reference, a C++ value or an unknown type, or is not a declaration.
    """
    match = _DECLARATION.match(declaration.strip())
    if match is None:
        raise NotSupported(f"not a C function declaration: {declaration[:80]!r}")
    returned, name, parameters = match[1].strip(), match[2], match[3]
    base, stars = returned.rstrip("* ").removeprefix("const "), returned.count("*")
    restype: Any = ctypes.c_void_p if stars else None if base == "void" else _type(base, 0)
    return name, Prototype(restype, tuple(map(_parameter, _split_parameters(parameters))))


@lru_cache(maxsize=64)
def container_prototype(name: str) -> Prototype:
    """Return how to call a function of the container API.

    Raises:
        NotFound: there is no such function.
        NotSupported: a C++ object crosses it, which no host but PyTorch may do (behaviour L3).
    """
    function = CONTAINER_API.get(name)
    if function is None:
        raise NotFound(f"no container function {name!r}")
    if function.cpp_abi:
        raise NotSupported(f"{name} passes a C++ object across the boundary, so it is never called")
    return Prototype(structs.AOTIRuntimeError, tuple(map(_parameter, _split_parameters(function.parameters))))


@lru_cache(maxsize=512)
def shim_prototype(name: str, version: str | None = None) -> Prototype:
    """Return how to call a function of the host API, as PyTorch ``version`` (the newest) declares it.

    Raises:
        NotFound: no known PyTorch has such a shim.
        NotSupported: a C++ value or reference crosses it.
    """
    declaration = signature(name, version)
    if declaration is None:
        raise NotFound(f"no shim {name!r} in any known PyTorch")
    return parse_declaration(declaration)[1]


def bind(library: ctypes.CDLL, name: str, prototype: Prototype) -> Any | None:
    """Return a function of a loaded library with its prototype set, or None if the library lacks it."""
    try:
        function = library[name]  # a new object each time: a prototype set elsewhere stays as it is
    except AttributeError:
        return None
    function.restype, function.argtypes = prototype
    return function


def bind_container(library: ctypes.CDLL, exports: Container[str] | None = None) -> dict[str, Any]:
    """Bind every container function that a plugin has, except those that a C++ object crosses (behaviour L3).

    Args:
        library: the loaded plugin.
        exports: names that its own symbol table defines; others are left alone, as ``dlsym`` also searches
            the libraries that a plugin depends on. None trusts ``dlsym``.

    Returns:
        The functions by name; absent ones are absent.
    """
    bound = {}
    for name, function in CONTAINER_API.items():
        if function.cpp_abi or (exports is not None and name not in exports):
            continue
        entry = bind(library, name, container_prototype(name))
        if entry is not None:
            bound[name] = entry
    return bound
