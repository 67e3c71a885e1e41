"""Which world an undefined symbol belongs to, told from its name alone.

A plugin's undefined symbols come from a handful of providers: the host's C shims, the C++ runtime, libtorch's
C++ API, Sleef, OpenMP, CUDA's runtime and driver, the C library. Symbols with a version name their provider
themselves; this is for those without.
"""

from __future__ import annotations

from aoti_abi.records import TYPE_CHECKING
from aoti_abi.symbols import SHIM_PREFIXES

if TYPE_CHECKING:
    from typing import Literal

    Family = Literal[
        "shim",
        "prefixed-shim",
        "libtorch-c++",
        "c++",
        "libc++",
        "sleef",
        "openmp",
        "cuda-runtime",
        "cuda-driver",
        "toolchain",
        "other",
    ]


#: Weak references that every shared library has and nothing needs to define.
_TOOLCHAIN = frozenset(
    {
        "__gmon_start__",
        "_ITM_deregisterTMCloneTable",
        "_ITM_registerTMCloneTable",
        "__cxa_finalize",
        "__tls_get_addr",
        "_DYNAMIC",
        "_GLOBAL_OFFSET_TABLE_",
    }
)
#: Itanium-mangled namespaces of libtorch: at, c10, torch, caffe2 (nested names start with their length).
_LIBTORCH_NAMESPACES = ("N2at", "N3c10", "N5torch", "N6caffe2")
#: What precedes the name proper in special symbols: vtables, typeinfo, guards, thunks, TLS wrappers.
_SPECIAL = ("TV", "TT", "TI", "TS", "GV", "TH", "TW", "Tc", "GR")
_STD_STARTS = ("NSt", "St", "Ss", "NSs", "Sa", "Si", "So", "Sd", "NSi", "NSo", "NSd")
#: Of those that look like the C++ runtime's, the ones that the C library defines.
LIBC_OWN = frozenset(("__cxa_atexit", "__cxa_at_quick_exit", "__cxa_finalize", "__cxa_thread_atexit_impl"))
_CXX_C_NAMES = ("__cxa_", "__gxx_personality", "__dynamic_cast", "_Unwind_")


def family(name: str) -> Family:
    """Return the family of one symbol name; a symbol of none is "other"."""
    if name in _TOOLCHAIN:
        return "toolchain"
    if name.startswith("_Z"):
        return _cxx_family(name[2:])
    if name.startswith(SHIM_PREFIXES):
        return "shim"
    if name.startswith("Sleef_"):
        return "sleef"
    if name.startswith(_CXX_C_NAMES):
        return "c++"
    if name.startswith(("GOMP_", "omp_", "kmpc_", "__kmpc_")):
        return "openmp"
    if name.startswith(("cuda", "__cuda")):
        return "cuda-runtime"
    if name.startswith("cu") and name[2:3].isupper():
        return "cuda-driver"
    if "aoti_torch_" in name:
        return "prefixed-shim"
    return "other"


def _cxx_family(mangled: str) -> Family:
    rest = mangled[2:] if mangled.startswith(_SPECIAL) else mangled
    if rest.startswith("N"):
        # A member function's cv- and ref-qualifiers stand before its scope: _ZNKSt..., _ZNOSt..., _ZNKRSt...
        rest = "N" + rest[1:].lstrip("rVKRO")
    # libc++ puts everything in an inline namespace std::__1 (or a vendor's __N1, __ndk1).
    if "NSt3__1" in rest or "NSt6__ndk1" in rest or "NKSt3__1" in rest:
        return "libc++"
    if rest.startswith(("N10__cxxabiv1", "nw", "na", "dl", "da")) or rest.startswith(_STD_STARTS):
        return "c++"
    if rest.startswith(_LIBTORCH_NAMESPACES):
        return "libtorch-c++"
    return "other"


def uses_old_string_abi(name: str) -> bool:
    """Whether a mangled name has the pre-C++11 ``std::string`` (``Ss``) among its parameters or scopes.

    ``Ss`` abbreviates ``std::string`` of the old ABI (Itanium C++ ABI, 5.1.8); the new one is spelled out as
    ``NSt7__cxx1112basic_string...``. A source name may contain the two letters, so names are skipped by their
    length prefix.
    """
    if not name.startswith("_Z"):
        return False
    position, end = 2, len(name)
    while position < end:
        char = name[position]
        if char.isdigit():
            start = position
            while position < end and name[position].isdigit():
                position += 1
            # An identifier follows its length; a length past the end is no mangled name.
            position += int(name[start : min(position, start + 6)])
        elif char == "L" and name[position + 1 : position + 2].islower():
            # An integer among template arguments, Li16E: its digits are no length either.
            close = name.find("E", position)
            if close < 0 or not name[position + 2 : close].removeprefix("n").isdigit():
                position += 1
            else:
                position = close + 1
        elif name.startswith("Ss", position):
            return True
        elif (
            char == "S"
            and position + 1 < end
            and (name[position + 1].isalpha() and name[position + 1].islower())
        ):
            position += 2
        elif char == "S":
            # A substitution, S_ or S<seq>_: its digits are no length.
            close = name.find("_", position)
            if close < 0:
                return False
            position = close + 1
        else:
            position += 1
    return False
