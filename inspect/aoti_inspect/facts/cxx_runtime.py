"""Which C++ library a file was compiled against, and whether it carries it in itself.

Evidence, from the strongest: symbols bound to ``GLIBCXX_`` or ``CXXABI_`` versions, the libraries in
DT_NEEDED, libc++'s inline namespace in names (``NSt3__1``), names of ``std`` at all. A runtime linked
statically shows by its own entry points being defined, strongly, in the file; if it is hidden, by C++ code
that asks nobody for ``__cxa_throw`` and the like, together with the message that ``std::terminate`` prints.
"""

from __future__ import annotations

from aoti_abi.records import TYPE_CHECKING
from aoti_inspect.facts.symbol_families import LIBC_OWN

if TYPE_CHECKING:
    from typing import Literal

    from aoti_inspect.elf.image import ElfImage
    from aoti_inspect.elf.records import ElfFacts

    Runtime = Literal["libstdc++", "libc++"]


#: Inline namespaces that libc++, Android and Chromium put std's names into, as they stand in mangled names.
_LIBCXX_NAMESPACES = (b"St3__1", b"St6__ndk1", b"St4__Cr", b"St3__2")
#: Functions and objects that only the runtime itself defines; headers give no copies of them.
_RUNTIME_CORE = ("__cxa_throw", "__cxa_begin_catch", "__gxx_personality_v0", "_ZSt9terminatev", "_ZSt4cerr")
_LIBCXX_CORE = ("_ZNSt3__14cerrE", "_ZNSt6__ndk14cerrE", "_ZNSt3__112__next_primeEm")
#: What the terminate handlers print: libstdc++'s vterminate.cc, libc++abi's cxa_default_handlers.cpp.
_TERMINATE_TEXTS: tuple[tuple[Runtime, bytes], ...] = (
    ("libstdc++", b"terminate called after throwing an instance of '"),
    ("libc++", b"terminating due to %s exception"),
    ("libc++", b"terminating with %s exception"),
)


def find_cxx_runtime(image: ElfImage, facts: ElfFacts) -> tuple[Runtime | None, bool]:
    """Return the C++ library, None if there is no C++ in the file, and whether it is linked statically."""
    asked = [
        symbol.name
        for symbol in facts.undefined
        if symbol.name.startswith(("_Z", "__cxa_", "__gxx_"))
        # A hidden static libstdc++ leaves weak references open (_ZGTtdlPv): it asks nobody.
        and symbol.binding != "weak"
        and symbol.name not in LIBC_OWN
    ]
    runtime = _flavour(image.strings.data, facts, asked)
    # Where no name of the runtime is defined strongly, none of these can be.
    candidates = (*_RUNTIME_CORE, *_LIBCXX_CORE) if facts.exports.std_strong else ()
    core = [name for name in candidates if _is_strong(image, name)]
    if core:
        libcxx = runtime == "libc++" or any(name in _LIBCXX_CORE for name in core)
        return ("libc++" if libcxx else "libstdc++"), True
    exports_cxx = facts.exports.std > 0 or facts.exports.runtime > 0 or bool(facts.exports.container)
    if not asked and (exports_cxx or _has_exception_tables(facts)):
        # C++ code that asks nobody for a runtime has none to ask, or brings its own, hidden.
        for name, text in _TERMINATE_TEXTS:
            if image.contains(text):
                return name, True
    return runtime, False


def _flavour(names: bytes, facts: ElfFacts, asked: list[str]) -> Runtime | None:
    if any(name.startswith(("libc++.so", "libc++_shared.so", "libc++abi.so")) for name in facts.needed):
        return "libc++"
    if any(need.version.startswith(("GLIBCXX_", "CXXABI_")) for need in facts.version_needs):
        return "libstdc++"
    if any(name.startswith("libstdc++.so") for name in facts.needed):
        return "libstdc++"
    if any(space in names for space in _LIBCXX_NAMESPACES):
        return "libc++"
    if facts.exports.std:
        return "libstdc++"
    if any(name.startswith(("_ZNSt", "_ZNKSt", "_ZSt", "__cxa_", "__gxx_")) for name in asked):
        return "libstdc++"
    if any("NSt7__cxx11" in name or "Ss" in name for name in asked):
        return "libstdc++"
    return None


def _is_strong(image: ElfImage, name: str) -> bool:
    entry = image.find(name)
    return entry is not None and entry.binding in ("global", "unique")


def _has_exception_tables(facts: ElfFacts) -> bool:
    return any(section.name == ".gcc_except_table" for section in facts.sections or ())
