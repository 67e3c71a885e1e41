"""No text that a file can hold makes a rule raise, or puts its own words into a code or a severity."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from aoti_inspect.elf.records import VersionNeed
from aoti_inspect.facts.records import GpuImage
from aoti_inspect.facts.target import Target
from aoti_inspect.findings import SEVERITIES, HostVerdict
from aoti_inspect.rules import plugin_rules
from aoti_inspect.rules.registry import PluginContext, run_rules

TARGET = Target("2.36", "3.4.30", "1.3.13", "x86_64", frozenset({"AVX2"}), 90)

#: Names as files hold them: any text, lone surrogates for bytes that are no UTF-8, near misses of known ones.
near_misses = st.sampled_from(
    [
        "GLIBC_2." + "9" * 5000,
        "GLIBC_",
        "GLIBC_2.²",
        "GLIBC_ABI_",
        "GLIBCXX_3..4",
        "CXXABI_1.3.x",
        "AOTInductor",
        "AOTInductorModelContainerRun",
        "aoti_torch_",
        "aoti_torch_cpu__v999999999999",
        "x_aoti_torch_",
        "Sleef_f16",
        "Sleef_",
        "_ZN3c10",
        "_Z99999999999999Ss",
        "_ZNSt3__1",
        "cu",
        "cuda",
        "$ORIGIN",
        "/tmp",
        "",
    ]
)
names = st.one_of(
    near_misses,
    st.text(max_size=30),
    st.binary(max_size=20).map(lambda raw: raw.decode("utf-8", "surrogateescape")),
)
several = st.lists(names, max_size=4).map(tuple)
images = st.builds(
    GpuImage,
    st.sampled_from(["cubin", "ptx"]),
    st.integers(0, 2**32),
    st.none() | names,
    st.sampled_from(["fatbin", "elf"]),
    st.just(0),
    st.just(0),
)
needs = st.builds(VersionNeed, names, names, st.booleans(), several)


METADATA_KEYS = ["AOTI_MACHINE", "AOTI_CPU_ISA", "AOTI_DEVICE_KEY", "AOTI_COMPUTE_CAPABILITY"]
changes = st.fixed_dictionaries(
    {
        "undefined": st.lists(names, max_size=6),
        "container": several,
        "needed": several,
        "rpath": several,
        "flags": several,
        "anomalies": several,
        "version_needs": st.lists(needs, max_size=4).map(tuple),
        "gpu": st.lists(images, max_size=3).map(tuple),
        "metadata": st.none() | st.dictionaries(st.sampled_from(METADATA_KEYS), names),
    }
)


@settings(max_examples=300, deadline=None)
@given(changes=changes)
def test_any_facts_give_findings_or_not_checked(plugin_of, changes):
    missing = tuple(sorted(set(changes["undefined"])))
    facts = plugin_of(**changes)
    verdict = HostVerdict("torch==2.9", "will not load", (), missing)
    findings, unchecked = run_rules(PluginContext(facts, TARGET, (verdict,)), plugin_rules())
    for finding in findings:
        assert finding.severity in SEVERITIES
        assert len(finding.message) < 20_000
    for entry in unchecked:
        assert entry.reason
