"""The dynamic linker's refusals, explained with what the inspector knows."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from aoti_abi import shim_catalogue
from aoti_abi.errors import AccessFailed
from aoti_inspect.facts.symbol_families import family, uses_old_string_abi
from aoti_loader import linker

if TYPE_CHECKING:
    from collections.abc import Callable

    from aoti_inspect.facts.records import PluginFacts
    from aoti_loader.hosts.host import Host

_UNDEFINED = re.compile(r"undefined symbol: ([^\s,]+)")
_VERSION = re.compile(r"version `([^']+)' not found")
_LIBRARY = re.compile(r"([^\s:]+): cannot open shared object file")

_FAMILIES = {
    "shim": "it is a function of the host API",
    "prefixed-shim": "it is a function of a host API under another prefix, which only its own host exports",
    "libtorch-c++": "it belongs to libtorch's C++ API, which no version promises to keep; only the PyTorch "
    "that compiled the plugin is sure to have it",
    "c++": "it belongs to the C++ runtime: preload='auto' opens libstdc++ if the plugin does not name it",
    "libc++": "it belongs to libc++, which must be installed (libc++1 on Debian)",
    "sleef": "it belongs to SLEEF, which libtorch_cpu exports: host='torch' has it",
    "openmp": "it belongs to OpenMP: the plugin was linked without libgomp or libomp; name one in preload",
    "cuda-runtime": "it belongs to the CUDA runtime: name a libcudart of the right version in preload",
    "cuda-driver": "it belongs to the CUDA driver, libcuda.so.1: is one installed?",
}


def explain_refusal(words: str, opened: str, facts: PluginFacts, host: Host) -> AccessFailed:
    """Return the error for a plugin that ``dlopen`` refused.

    Args:
        words: of ``dlerror``.
        opened: the path that was opened, which may be a private copy.
        facts: of the plugin.
        host: the chosen host.
    """
    message, hint = "the dynamic linker refused the plugin", None
    for pattern, explain in _EXPLANATIONS:
        match = pattern.search(words)
        if match:
            message, hint = explain(match[match.lastindex or 0], facts, host)
            break
    # The copy's name says nothing to anybody.
    return AccessFailed(message, path=facts.name, cause=words.replace(opened, facts.name), hint=hint)


def _undefined(name: str, _facts: PluginFacts, host: Host) -> tuple[str, str | None]:
    parts = []
    if uses_old_string_abi(name):
        parts.append(
            "it has std::string of the ABI before C++11: the plugin was compiled against an old PyTorch"
        )
    kind = family(name)
    if kind in _FAMILIES:
        parts.append(_FAMILIES[kind])
    if kind == "shim":
        parts.append(shim_catalogue.skew(name) or "")
    message = f"nothing in the process defines {name}, with the {host.name} host"
    return message, "; ".join(filter(None, parts)) or "name the library that defines it in preload"


def _version(version: str, facts: PluginFacts, _host: Host) -> tuple[str, str | None]:
    symbols = sorted(
        symbol for need in facts.elf.version_needs if need.version == version for symbol in need.symbols
    )
    shown = ", ".join(symbols[:3]) + (f" and {len(symbols) - 3} more" if len(symbols) > 3 else "")
    why = f", because of {shown}" if symbols else ""
    library = next((need.library for need in facts.elf.version_needs if need.version == version), "a library")
    used = linker.is_loaded(library)
    where = f" ({used})" if used else ""
    return (
        f"it needs {version} of {library}{why}, and the one in this process{where} is older",
        f"run where {library} is newer, or compile the plugin on an older system",
    )


def _library(library: str, facts: PluginFacts, _host: Host) -> tuple[str, str | None]:
    if library == "libcuda.so.1":
        return (
            f"{library} was not found",
            "it comes with NVIDIA's driver: is there a GPU, and a driver for it?",
        )
    what = (
        "which it names in DT_NEEDED"
        if library in facts.elf.needed
        else "which a library that it needs names"
    )
    return f"{library} was not found, {what}", "install it, or put its folder on LD_LIBRARY_PATH"


def _execstack(_: str, _facts: PluginFacts, _host: Host) -> tuple[str, str | None]:
    return (
        "it asks for an executable stack, which this system refuses",
        "let its private copy be mended (mend=True)",
    )


def _map_segment(_: str, _facts: PluginFacts, _host: Host) -> tuple[str, str | None]:
    return (
        "the system does not map code from where the private copy is",
        "set TMPDIR to a folder that is not mounted noexec",
    )


def _static_tls(_: str, _facts: PluginFacts, _host: Host) -> tuple[str, str | None]:
    return (
        "no room is left for its thread-local variables",
        "load it earlier, or set GLIBC_TUNABLES=glibc.rtld.optional_static_tls=16384",
    )


_Explanation = tuple["re.Pattern[str]", "Callable[[str, PluginFacts, Host], tuple[str, str | None]]"]
_EXPLANATIONS: tuple[_Explanation, ...] = (
    (_UNDEFINED, _undefined),
    (_VERSION, _version),
    (_LIBRARY, _library),
    (re.compile(r"executable stack"), _execstack),
    (re.compile(r"failed to map segment"), _map_segment),
    (re.compile(r"static TLS"), _static_tls),
)
