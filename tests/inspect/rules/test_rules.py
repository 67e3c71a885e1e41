"""What holds for every rule: its code, its page, its wording, and its cost."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

import aoti_inspect.rules
from aoti_inspect.facts.target import Target
from aoti_inspect.findings import SEVERITIES
from aoti_inspect.rules import all_rules, package_rules, plugin_rules
from aoti_inspect.rules.registry import PluginContext, package_rule, plugin_rule, run_rules
from aoti_inspect.wording import counted, listed, sized

ROOT = Path(__file__).resolve().parents[3]
PARTS = ("## Why it matters", "## How it is checked", "## How to fix it", "## Reports it prevents")
FOLDER = Path(aoti_inspect.rules.__file__).parent


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
def test_a_code_is_in_the_module_that_is_named_for_its_range(rule):
    assert re.fullmatch(r"AOTI[1-7][0-9]{2}", rule.code)
    assert re.fullmatch(r"[a-z0-9]+([.-][a-z0-9]+)*", rule.name)
    assert rule.severity in SEVERITIES
    module = rule.check.__module__.rpartition(".")[2]
    first, last = re.fullmatch(r"aoti(\d\dx)_(?:(\d\dx)_)?[a-z_]+", module).groups()
    assert first[:2] <= rule.code[4:6] <= (last or first)[:2]


def test_no_two_modules_have_the_same_range():
    ranges = []
    for module in {rule.check.__module__.rpartition(".")[2] for rule in all_rules().values()}:
        first, last = re.match(r"aoti(\d\d)x_(?:(\d\d)x_)?", module).groups()
        ranges += range(int(first), int(last or first) + 1)
    assert len(ranges) == len(set(ranges))


def test_every_module_of_rules_is_evaluated():
    modules = {path.stem for path in FOLDER.glob("aoti*.py")}
    assert {rule.check.__module__.rpartition(".")[2] for rule in all_rules().values()} == modules


def test_the_tables_do_not_depend_on_what_was_imported_before():
    paths = [str(ROOT / "abi"), str(ROOT / "inspect")]
    results = set()
    archive = "import_module('aoti_inspect.rules.aoti75x_archive_security')"
    for first in ("pass", "package_rules()", "all_rules()", archive):
        code = (
            "import sys; sys.path[:0] = sys.argv[1:]; from importlib import import_module;"
            f"from aoti_inspect.rules import all_rules, package_rules, plugin_rules; {first};"
            "print(*plugin_rules(), '-', *package_rules())"
        )
        command = [sys.executable, "-I", "-S", "-c", code, *paths]
        results.add(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert results == {f"{' '.join(plugin_rules())} - {' '.join(package_rules())}\n"}


def test_a_code_or_name_is_registered_once():
    taken = plugin_rules()["AOTI401"]
    for code, name in ((taken.code, "new-name"), ("AOTI799", taken.name)):
        for register in (plugin_rule, package_rule):
            with pytest.raises(ValueError, match="registered twice"):
                register(code, name, "error")(taken.check)
    assert "AOTI799" not in all_rules()


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
    context = PluginContext(
        plugin(), Target("2.36", "3.4.30", "1.3.13", "x86_64", frozenset({"AVX2"}), 90), ()
    )
    findings, unchecked = run_rules(context, plugin_rules())
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
    findings, _ = run_rules(PluginContext(broken, Target(sm=90), (verdict,)), plugin_rules())
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
