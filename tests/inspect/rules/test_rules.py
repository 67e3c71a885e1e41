"""What holds for every rule: its code, its page, its wording, and its cost."""

from __future__ import annotations

import importlib.util
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

from aoti_inspect.facts.target import Target
from aoti_inspect.findings import SEVERITIES
from aoti_inspect.rules import all_rules
from aoti_inspect.rules.registry import Context, run_rules
from aoti_inspect.wording import counted, listed, sized

ROOT = Path(__file__).resolve().parents[3]
PARTS = ("## Why it matters", "## How it is checked", "## How to fix it", "## Reports it prevents")
HUNDREDS = {
    "1": {"container_api", "lost_features"},
    "2": {"cxx_runtime", "cxx_versions"},
    "3": {"host_shims", "shim_libraries"},
    "4": {"system", "identity", "processor", "linkage"},
    "5": {"gpu_code"},
    "6": {"weights"},
    "7": {"security"},
}


@pytest.mark.parametrize("rule", all_rules().values(), ids=all_rules())
def test_every_rule_has_a_page_with_all_parts(rule):
    page = rule.page
    first = page.splitlines()[0]
    assert first.endswith(".")
    assert len(first) < 110
    positions = [page.find(part) for part in PARTS]
    assert min(positions) > 0, page
    assert positions == sorted(positions)
    for part, following in zip(PARTS, (*PARTS[1:], None), strict=True):
        body = page.split(part)[1].split(following)[0] if following else page.split(part)[1]
        assert body.strip(), part


@pytest.mark.parametrize("rule", all_rules().values(), ids=all_rules())
def test_every_code_lies_in_its_hundred(rule):
    assert re.fullmatch(r"AOTI[1-7][0-9]{2}", rule.code)
    assert re.fullmatch(r"[a-z0-9]+([.-][a-z0-9]+)*", rule.name)
    assert rule.severity in SEVERITIES
    module = inspect.getmodule(rule.check).__name__.rpartition(".")[2]
    if module.startswith("package"):
        assert 610 <= int(rule.code[4:]) < 700 or int(rule.code[4:]) >= 750
    else:
        assert module in HUNDREDS[rule.code[4]]


def test_the_pages_in_docs_are_up_to_date():
    specification = importlib.util.spec_from_file_location(
        "generate_rules", ROOT / "docs" / "generate_rules.py"
    )
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    assert module.out_of_date() == []
    assert module.main(["--check"]) == 0
    assert module.main(["--what"]) == 2


def test_rules_import_nothing_heavy():
    """Each run of the command imports every rule: what costs milliseconds has no place in them."""
    code = (
        "import sys; sys.path[:0] = sys.argv[1:]; before = set(sys.modules);"
        "from aoti_inspect.rules import all_rules; all_rules();"
        "heavy = {'dataclasses', 'inspect', 'json', 'pathlib', 'zipfile', 'gzip', 'ctypes'};"
        "print(sorted(heavy & (set(sys.modules) - before)))"
    )
    paths = [str(ROOT / "abi"), str(ROOT / "inspect")]
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, *paths], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_a_healthy_plugin_has_few_findings_and_no_warning(plugin):
    context = Context(plugin(), Target("2.36", "3.4.30", "1.3.13", "x86_64", frozenset({"AVX2"}), 90), ())
    findings, unchecked = run_rules(context, all_rules())
    assert not unchecked
    assert {finding.severity for finding in findings} == {"info"}
    assert [finding.code for finding in findings] == ["AOTI130", "AOTI207", "AOTI208", "AOTI310"]


def test_the_abi_cause_comes_before_what_follows_from_it(plugin):
    from aoti_inspect.auditing.result import by_gravity
    from aoti_inspect.facts.records import GpuImage
    from aoti_inspect.findings import HostVerdict

    broken = plugin(
        undefined=("_ZN3c107WarningC1ERKSs", "aoti_torch_cuda_mm_out"),
        gpu=(GpuImage("cubin", 121, None, "elf", 0, 1),),
    )
    verdict = HostVerdict("torch==2.13", "will not load", (), ("aoti_torch_cuda_mm_out",))
    findings, _ = run_rules(Context(broken, Target(sm=90), (verdict,)), all_rules())
    assert [finding.code for finding in by_gravity(findings)][:3] == ["AOTI205", "AOTI301", "AOTI501"]


def test_names_in_sentences():
    assert listed([]) == ""
    assert listed(["a"]) == "a"
    assert listed(["a", "b"]) == "a and b"
    assert listed(list("abcde")) == "a, b, c, d and e"
    assert listed(["a" * 72, "b" * 73]) == f"{'a' * 72} and {'b' * 69}..."
    assert listed(list("abcdef")) == "a, b, c, d and 2 more"
    assert counted(1, "symbol") == "1 symbol"
    assert counted(2, "library", "libraries") == "2 libraries"
    assert [sized(1), sized(9999), sized(1_572_864), sized(1 << 50)] == [
        "1 byte",
        "9999 bytes",
        "1.5 MiB",
        "1048576.0 GiB",
    ]
