"""Facts of a healthy plugin, changed field by field, and one rule run on them."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from aoti_abi.container_api import CONTAINER_API
from aoti_abi.versions import parse_version
from aoti_inspect.elf.records import ElfFacts, ElfHeader, ExportSummary, Section, Segment, Symbol, VersionNeed
from aoti_inspect.facts.openmp import find_safe_team
from aoti_inspect.facts.records import PluginFacts, Weights
from aoti_inspect.facts.target import Target
from aoti_inspect.findings import Finding, NotChecked
from aoti_inspect.rules import plugin_rules
from aoti_inspect.rules.registry import PluginContext, run_rules

BASELINE_SHIMS = (
    "aoti_torch_create_tensor_from_blob_v2",
    "aoti_torch_delete_tensor_object",
    "aoti_torch_empty_strided",
    "aoti_torch_get_data_ptr",
)
NEEDS = (
    VersionNeed("libc.so.6", "GLIBC_2.34", False, ("pthread_rwlock_rdlock",)),
    VersionNeed("libstdc++.so.6", "GLIBCXX_3.4.30", False, ("_ZNSt18condition_variable4waitERSt",)),
    VersionNeed("libstdc++.so.6", "CXXABI_1.3.9", False, ("_ZdlPvm",)),
)


class Outcome(NamedTuple):
    """What one rule said."""

    findings: list[Finding]
    unchecked: list[NotChecked]

    @property
    def only(self) -> Finding:
        assert len(self.findings) == 1, self.findings
        assert not self.unchecked
        return self.findings[0]

    @property
    def silent(self) -> bool:
        return not self.findings and not self.unchecked


def emitted_by(version: str) -> tuple[str, ...]:
    """The container functions that a plugin of this PyTorch exports."""
    return tuple(
        sorted(
            function.name
            for function in CONTAINER_API.values()
            if not function.generated and parse_version(function.since) <= parse_version(version)
        )
    )


def symbol(text: str) -> Symbol:
    """Read ``name``, ``name@VERSION``, ``name@VERSION@library`` or ``?name`` (weak)."""
    name, _, rest = text.removeprefix("?").partition("@")
    version, _, library = rest.partition("@")
    return Symbol(name, "weak" if text.startswith("?") else "global", version or None, library or None)


def make_plugin(**changes: Any) -> PluginFacts:
    """A healthy default CPU plugin of PyTorch 2.13, with fields of any of its records replaced.

    ``undefined`` takes texts as `symbol` reads them, and ``torch`` the version whose functions are exported.
    """
    if "undefined" in changes:
        changes["undefined"] = tuple(map(symbol, changes["undefined"]))
    if "torch" in changes:
        changes["container"] = emitted_by(changes.pop("torch"))
    if "weights" in changes and isinstance(changes["weights"], str):
        changes["weights"] = Weights(changes["weights"], 0, 0, None, None, None, None)
    header = ElfHeader(64, "little", "DYN", 62, "x86_64")
    exports = ExportSummary(
        total=400,
        container=emitted_by("2.13"),
        shims=(),
        std=250,
        std_strong=0,
        std_examples=("_ZNSt6vectorIlSaIlEED1Ev",),
        runtime=40,
        unique=("_ZSt19piecewise_construct",),
        others=4,
        other_examples=("_binary_constants_bin_start", "cpp_fused_relu_0"),
    )
    elf = ElfFacts(
        size=370_000,
        header=header,
        segments=(
            Segment("LOAD", "R", 0, 0, 4096, 4096, 4096),
            Segment("LOAD", "RE", 4096, 4096, 4096, 4096, 4096),
        ),
        is_dynamic=True,
        interpreter=None,
        soname=None,
        needed=("libtorch_cpu.so", "libstdc++.so.6", "libc.so.6"),
        rpath=(),
        runpath=(),
        flags=(),
        build_id=None,
        executable_stack=False,
        text_relocations=False,
        symbol_count=600,
        symbol_count_source="DT_GNU_HASH",
        undefined=(
            *(Symbol(name, "global", None, None) for name in BASELINE_SHIMS),
            Symbol("_ZdlPvm", "global", "CXXABI_1.3.9", "libstdc++.so.6"),
            Symbol("memcpy", "global", "GLIBC_2.14", "libc.so.6"),
            Symbol("__gmon_start__", "weak", None, None),
        ),
        exports=exports,
        version_needs=NEEDS,
        version_definitions=(),
        sections=(Section(".text", 1, 6, 4096, 4096, 4096),),
        section_problem=None,
        debug_info=False,
        anomalies=(),
    )
    header = header._replace(**_pick(changes, ElfHeader, {"machine_name", "bits", "byte_order", "type"}))
    exports = exports._replace(**_pick(changes, ExportSummary))
    elf = elf._replace(header=header, exports=exports, **_pick(changes, ElfFacts))
    weights = Weights("embedded", 8192, 2688, None, None, None, False)
    metadata = {"AOTI_DEVICE_KEY": "cpu", "AOTI_MACHINE": "x86_64", "AOTI_CPU_ISA": "AVX2"}
    plugin = PluginFacts("model.so", elf, (), weights, "libstdc++", False, metadata)
    plugin = plugin._replace(openmp_team=find_safe_team(elf, ()))
    plugin = plugin._replace(**_pick(changes, PluginFacts))
    assert not changes, f"no such fields: {sorted(changes)}"
    return plugin


def _pick(changes: dict[str, Any], record: type, allowed: set[str] | None = None) -> dict[str, Any]:
    names = allowed if allowed is not None else set(record._fields)  # type: ignore[attr-defined]
    return {name: changes.pop(name) for name in list(changes) if name in names}


def run_rule(
    code: str,
    *,
    facts: PluginFacts | None = None,
    target: Target = Target(),  # noqa: B008 - immutable
    verdicts: tuple = (),
    disagreements: tuple[str, ...] = (),
    **changes: Any,
) -> Outcome:
    """Run one rule on a healthy plugin with some fields changed, or on given facts."""
    plugin = facts if facts is not None else make_plugin(**changes)
    context = PluginContext(plugin, target, verdicts, disagreements)
    return Outcome(*run_rules(context, {code: plugin_rules()[code]}))


@pytest.fixture
def run():
    return run_rule


@pytest.fixture
def plugin():
    return make_plugin


@pytest.fixture
def emitted():
    return emitted_by


@pytest.fixture(scope="session")
def plugin_of():
    return make_plugin
