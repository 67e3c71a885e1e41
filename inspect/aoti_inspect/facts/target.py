"""The machine that a plugin is meant for: glibc, C++ runtime, processor, GPU.

Rules compare a plugin with a `Target`. A field that is None is not compared. `local_target` reads this
machine's values, which are the default of the command; `parse_target` lays a user's ``--target`` over them.
"""

from __future__ import annotations

import os

from aoti_abi.errors import InvalidArgument
from aoti_abi.records import TYPE_CHECKING, NamedTuple
from aoti_abi.versions import parse_version
from aoti_inspect.elf.format import machine_names

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

#: x86-64 and aarch64 instruction sets as Inductor's metadata names them, with the /proc/cpuinfo flags that a
#: processor shows when it has them (``torch/_inductor/cpu_vec_isa.py``).
ISA_FLAGS: dict[str, tuple[str, ...]] = {
    "AVX2": ("avx2", "fma", "f16c"),
    "AVX512": ("avx512f", "avx512dq", "avx512vl", "avx512bw", "fma"),
    "AVX512_VNNI": ("avx512_vnni",),
    "AMX": ("amx_tile", "amx_bf16", "amx_int8"),
    "AMX_TILE": ("amx_tile", "amx_bf16", "amx_int8"),
    "AMX_FP16": ("amx_fp16",),
    "NEON": ("asimd",),
    "SVE": ("sve",),
    "SVE256": ("sve",),
}

#: What each instruction set brings with it, so that ``--target isa=avx512`` also admits AVX2.
ISA_IMPLIES: dict[str, tuple[str, ...]] = {
    "AVX512": ("AVX2",),
    "AVX512_VNNI": ("AVX512", "AVX2"),
    "AMX": ("AMX_TILE", "AVX512_VNNI", "AVX512", "AVX2"),
    "AMX_TILE": ("AVX512_VNNI", "AVX512", "AVX2"),
    "AMX_FP16": ("AMX_TILE", "AVX512_VNNI", "AVX512", "AVX2"),
    "SVE": ("NEON",),
    "SVE256": ("SVE", "NEON"),
}


#: What Debian, Docker, Go and Windows call machines.
_MACHINE_ALIASES: dict[str, str] = {
    "amd64": "x86_64",
    "x86-64": "x86_64",
    "x64": "x86_64",
    "arm64": "aarch64",
    "armv7l": "arm",
    "i486": "i386",
    "i586": "i386",
    "i686": "i386",
    "x86": "i386",
    "ppc64el": "ppc64le",
}


class Target(NamedTuple):
    """What a plugin will find where it runs; None means "not compared".

    Attributes:
        glibc: the C library's version, as ``"2.35"``.
        glibcxx: the newest ``GLIBCXX_`` version of libstdc++, as ``"3.4.30"``.
        cxxabi: the newest ``CXXABI_`` version of libstdc++, as ``"1.3.13"``.
        machine: as ``uname -m`` has it.
        isa: instruction sets by Inductor's names, upper case.
        sm: the GPU's compute capability as an integer, 90 for 9.0.
        driver: the version of the NVIDIA driver, as ``"535.104.05"``.
        cuda: the version of the CUDA libraries that the host brings, as ``"12.8"``.
        local: whether the values that were not given were read from this machine.
    """

    glibc: str | None = None
    glibcxx: str | None = None
    cxxabi: str | None = None
    machine: str | None = None
    isa: frozenset[str] | None = None
    sm: int | None = None
    driver: str | None = None
    cuda: str | None = None
    local: bool = False


def local_target() -> Target:
    """Return this machine's values, as far as they can be told without loading a library.

    ``sm``, ``driver`` and ``cuda`` would take CUDA, ``glibcxx`` and ``cxxabi`` the libstdc++ that a process
    will come to have.
    """
    return Target(
        glibc=_local_glibc(),
        machine=_MACHINE_ALIASES.get(os.uname().machine, os.uname().machine),
        isa=_local_isa(),
        local=True,
    )


def parse_target(text: str, base: Target) -> Target:
    """Lay ``key=value`` pairs, separated by commas, over ``base``.

    Keys: ``glibc``, ``glibcxx``, ``cxxabi``, ``machine``, ``isa`` (joined by ``+``), ``sm``, ``driver``,
    ``cuda``. The value ``any`` turns a comparison off. Naming another machine than ``base`` has drops the
    other values of ``base``, which say nothing about that machine.

    Raises:
        InvalidArgument: an unknown key, a key without a value, or a value of the wrong form.
    """
    given: dict[str, str] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        key, equals, value = item.partition("=")
        key, value = key.strip().lower(), value.strip()
        if key not in _PARSERS:
            known = ", ".join(_PARSERS)
            raise InvalidArgument(f"unknown target key {key!r}", hint=f"known keys: {known}")
        if not equals or not value:
            raise InvalidArgument(f"target key {key!r} has no value", hint=f"write {key}=VALUE, or {key}=any")
        given[key] = value
    values = {key: _parse(key, value) for key, value in given.items()}
    if "machine" in values and values["machine"] != base.machine:
        base = Target()
    return base._replace(**values)


def _parse(key: str, value: str) -> Any:
    if value.lower() == "any":
        return None
    try:
        return _PARSERS[key](value)
    except ValueError as error:
        raise InvalidArgument(f"target {key}={value!r} is malformed", cause=str(error)) from error


def _version(text: str) -> str:
    parse_version(text)
    return text


def _isa(text: str) -> frozenset[str]:
    names = {part.strip().upper() for part in text.split("+") if part.strip()}
    unknown = sorted(names - ISA_FLAGS.keys() - {"BASELINE"})
    if unknown:
        known = ", ".join(name.lower() for name in ISA_FLAGS)
        raise ValueError(f"unknown instruction set {unknown[0]!r}; known: baseline, {known}")
    return frozenset(names - {"BASELINE"}).union(*(ISA_IMPLIES.get(name, ()) for name in names))


def _machine(text: str) -> str:
    """Return the name that ``uname -m`` has for a machine that other tools call otherwise."""
    name = _MACHINE_ALIASES.get(text.lower(), text.lower())
    if name not in machine_names():
        raise ValueError(f"no known machine; known: {', '.join(sorted(machine_names()))}")
    return name


def _sm(text: str) -> int:
    if "+" in text:
        raise ValueError("an audit is for one GPU: run it once for each")
    digits = text.lower().removeprefix("sm_").removeprefix("sm").rstrip("af").replace(".", "")
    if not (digits.isascii() and digits.isdigit() and 2 <= len(digits) <= 4):
        raise ValueError("write it as 90, 9.0 or sm_90")
    return int(digits)


_PARSERS: dict[str, Callable[[str], Any]] = {
    "glibc": _version,
    "glibcxx": _version,
    "cxxabi": _version,
    "machine": _machine,
    "isa": _isa,
    "sm": _sm,
    "driver": _version,
    "cuda": _version,
}


def _local_glibc() -> str | None:
    try:
        text = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):
        return None
    name, _, version = text.partition(" ")
    return version if name == "glibc" and version else None


def _local_isa() -> frozenset[str] | None:
    """Read the processor's flags; Inductor would compile probes with g++, which takes seconds."""
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as stream:
            for line in stream:
                key, _, value = line.partition(":")
                if key.strip() in ("flags", "Features"):
                    flags = set(value.split())
                    return frozenset(
                        name for name, needed in ISA_FLAGS.items() if all(flag in flags for flag in needed)
                    )
    except OSError:
        pass
    return None
