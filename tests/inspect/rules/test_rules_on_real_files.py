"""Rules on files that the system's compiler and linker made: one cause each."""

from __future__ import annotations

import subprocess

import pytest

from aoti_abi.container_api import CONTAINER_API
from aoti_inspect.artifacts.facts import read_facts
from aoti_inspect.facts.target import Target
from aoti_inspect.rules import plugin_rules
from aoti_inspect.rules.registry import PluginContext, run_rules

C = "AOTInductorModelContainer"
#: What a synthetic C plugin is always found to have.
COMMON = {"AOTI130", "AOTI311"}


def c_source(*, without: tuple[str, ...] = (), body: str = "") -> str:
    names = [name for name, entry in CONTAINER_API.items() if not entry.generated and name not in without]
    functions = "\n".join(f"int {name}(void) {{ return aoti_torch_get_dim(); }}" for name in names)
    return f"extern int aoti_torch_get_dim(void);\n{functions}\n{body}\n"


@pytest.fixture
def build(tmp_path):
    def compile_file(source: str, *flags: str, suffix: str = ".c", driver: str = "cc", shared: bool = True):
        path = tmp_path / f"plugin{suffix}"
        path.write_text(source)
        out = tmp_path / "plugin.so"
        kind = ("-shared", "-fPIC") if shared else ()
        command = [driver, *kind, "-O1", "-w", "-o", str(out), str(path), *flags]
        subprocess.run(command, check=True, capture_output=True)
        return str(out)

    return compile_file


def codes(path: str, target: Target = Target()) -> set[str]:  # noqa: B008 - immutable
    findings, _ = run_rules(PluginContext(read_facts(path), target, ()), plugin_rules())
    return {finding.code for finding in findings}


def find(path: str, code: str, target: Target = Target()):  # noqa: B008 - immutable
    findings, _ = run_rules(PluginContext(read_facts(path), target, ()), {code: plugin_rules()[code]})
    assert len(findings) == 1, findings
    return findings[0]


def test_a_plain_plugin_has_only_remarks(build):
    assert codes(build(c_source(), "-Wl,-z,noexecstack")) == COMMON


@pytest.mark.parametrize(
    ("flags", "code"),
    [
        (("-Wl,-z,execstack",), "AOTI401"),
        (("-Wl,-rpath,/tmp/build-xyz",), "AOTI703"),
        (("-Wl,-rpath,relative/lib",), "AOTI703"),
        (("-Wl,-rpath,/home/builder/lib",), "AOTI704"),
        (("-Wl,--disable-new-dtags", "-Wl,-rpath,/home/builder/lib"), "AOTI704"),
        (("-Wl,--no-as-needed", "-lm"), "AOTI440"),
        (("-Wl,-z,nodelete",), "AOTI431"),
    ],
)
def test_one_linker_option_is_one_finding(build, flags, code):
    found = codes(build(c_source(), *flags))
    assert found - COMMON == {code}


def test_a_linker_that_merges_code_and_data(build):
    assert "AOTI702" in codes(build(c_source(), "-Wl,-N", "-nostdlib"))


def test_L1_an_entry_point_that_was_left_out(build):
    path = build(c_source(without=(f"{C}Run", f"{C}Delete")))
    assert find(path, "AOTI102").symbols == (f"{C}Delete", f"{C}Run")


def test_hidden_entry_points(build):
    path = build(c_source(), "-fvisibility=hidden")
    assert "AOTI101" in codes(path)


def test_the_symbols_behind_a_version_need(build):
    path = build(c_source(body='int printf(const char*, ...); int say(void) { return printf("%d", 1); }'))
    assert "printf" in find(path, "AOTI403", Target(glibc="2.1")).symbols
    assert "AOTI403" not in codes(path, Target(glibc="2.99"))


def test_static_thread_local_storage(build):
    path = build(
        c_source(body="__thread int slot; int* slot_address(void) { return &slot; }"),
        "-ftls-model=initial-exec",
    )
    assert "AOTI430" in codes(path)


def test_executables_are_not_loadable(build):
    path = build(
        c_source(body="int main(void) { return 0; } int aoti_torch_get_dim(void) { return 0; }"), shared=False
    )
    assert "AOTI432" in codes(path)


CXX = """
#include <string>
#include <sstream>
#include <locale>
namespace c10 {{ struct Warning {{ Warning(const std::string&); }}; }}
{extra}
extern "C" int {C}Run() {{
    std::ostringstream stream; stream << 1.5 << std::locale().name();
    {body}
    return (int)stream.str().size();
}}
"""


def cxx_source(*, extra: str = "", body: str = "") -> str:
    return CXX.format(C=C, extra=extra, body=body)


@pytest.mark.parametrize(("abi", "code"), [("0", "AOTI205"), ("1", "AOTI206")])
def test_both_string_abis_of_a_libtorch_symbol(build, abi, code):
    path = build(
        cxx_source(body="c10::Warning w(stream.str());"),
        f"-D_GLIBCXX_USE_CXX11_ABI={abi}",
        suffix=".cpp",
        driver="g++",
    )
    found = codes(path)
    assert code in found
    assert not {"AOTI205", "AOTI206"} - {code} & found
    assert all("c10" in name for name in find(path, code).symbols if "Warning" in name)


def test_L7_linked_without_the_cxx_runtime(build):
    path = build(cxx_source(), "-nodefaultlibs", "-lc", suffix=".cpp", driver="g++")
    assert "AOTI201" in codes(path)
    assert "AOTI201" not in codes(build(cxx_source(), suffix=".cpp", driver="g++"))


def test_a_static_cxx_runtime_exported_and_hidden(build):
    exported = build(cxx_source(), "-static-libstdc++", suffix=".cpp", driver="g++")
    assert find(exported, "AOTI202").severity == "error"
    hidden = build(cxx_source(), "-static-libstdc++", "-Wl,--exclude-libs,ALL", suffix=".cpp", driver="g++")
    found = codes(hidden)
    assert "AOTI202" not in found
    assert "AOTI203" in found


def test_unique_symbols_of_inline_statics(build):
    extra = """
    inline int& counter() { static int value; return value; }
    extern "C" int bump() { return ++counter(); }
    """
    path = build(cxx_source(extra=extra), suffix=".cpp", driver="g++")
    assert find(path, "AOTI207").symbols == ("_ZZ7countervE5value",)
    path = build(cxx_source(extra=extra), "-fno-gnu-unique", suffix=".cpp", driver="g++")
    assert "AOTI207" not in codes(path)
