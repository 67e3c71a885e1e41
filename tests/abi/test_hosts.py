"""The descriptions of hosts: found by name, whole, and the only place that tells one host from another."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from aoti_abi import hosts
from aoti_abi.errors import InvalidArgument
from aoti_abi.host_descriptor import HostDescriptor
from aoti_abi.hosts import torch

ROOT = Path(__file__).resolve().parents[2]


def test_every_module_describes_the_family_of_its_name() -> None:
    assert set(hosts.families()) == {"builtin", "executorch", "torch"}
    for name in hosts.families():
        host = hosts.family(name)
        assert isinstance(host, HostDescriptor)
        assert host.name == name
        assert all(hosts.find(shown) is not None for shown in host.audited)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("builtin", "builtin"),
        ("torch==2.13", "torch==2.13"),
        ("torch==2.13.1+cu130", "torch==2.13"),
        ("executorch", "executorch==1.5"),
        ("executorch==1.1", "executorch==1.1"),
        ("executorch==1.5.1", "executorch==1.5"),
        ("torch", None),
        ("local", None),
        ("os", None),
        ("../torch==2.13", None),
        ("__init__", None),
        ("", None),
    ],
)
def test_hosts_are_found_by_name(name: str, found: str | None) -> None:
    host = hosts.find(name)
    assert (host.name if host else None) == found


@pytest.mark.parametrize(
    ("name", "message", "hint"),
    [
        ("torch==2.99", "does not cover PyTorch 2.99", "libtorch_cpu.so"),
        ("torch==new", "not a version of PyTorch: 'new'", "write torch==2."),
        ("executorch==0.9", "does not cover ExecuTorch 0.9", "it covers 1.1 to 1.5"),
        ("executorch==", "not a version of ExecuTorch", "write executorch==1.5"),
        ("builtin==1.0", "comes without versions", "write builtin"),
    ],
)
def test_a_version_that_is_not_known_is_one_error(name: str, message: str, hint: str) -> None:
    with pytest.raises(InvalidArgument, match=message) as caught:
        hosts.find(name)
    assert hint in (caught.value.hint or "")


def test_shims_depend_on_the_machine_and_the_version() -> None:
    builtin, old, new = hosts.find("builtin"), hosts.find("torch==2.9"), hosts.find("torch==2.10")
    assert builtin
    assert old
    assert new
    assert builtin.provides("x86_64")("Sleef_expf16_u10")
    assert not builtin.provides("aarch64")("Sleef_expf16_u10")
    assert builtin.provides("riscv64")("aoti_torch_get_dim")
    assert not old.provides("x86_64")("torch_call_dispatcher")
    assert new.provides("x86_64")("torch_call_dispatcher")


def test_versions_are_compared_as_numbers() -> None:
    old, new = hosts.find("torch==2.6"), hosts.find("torch==2.13")
    assert old
    assert new
    assert [old.at_least("2.7"), new.at_least("2.7"), new.at_least(None)] == [False, True, False]


@pytest.mark.parametrize("entry", ["libtorch_cpu.so", "/opt/lib/libtorch_cpu.so", "../libc10.so"])
def test_libtorch_is_known_by_its_file_name(entry: str) -> None:
    assert torch.is_libtorch(entry)
    assert not torch.is_libtorch(f"{entry}.1")
    assert not torch.is_libtorch(f"my{entry.rpartition('/')[2]}")


def _compared(tree: ast.AST) -> list[tuple[int, str]]:
    """Return the strings that are compared with something, or matched, and their lines."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare | ast.MatchValue):
            parts = [part.value for part in ast.walk(node) if isinstance(part, ast.Constant)]
            found += [(node.lineno, part) for part in parts if isinstance(part, str)]
    return found


def test_nothing_tells_hosts_apart_by_their_names() -> None:
    names = {*hosts.families(), *(f"{name}==" for name in hosts.families()), "process"}
    ladders = [
        f"{path.relative_to(ROOT)}:{line}: {text!r}"
        for package in ("inspect", "loader", "executor")
        for path in sorted((ROOT / package).rglob("*.py"))
        if path.parent.name != "artifacts"  # it knows no hosts, and "torch" is a module in a pickle there
        for line, text in _compared(ast.parse(path.read_text(encoding="utf-8")))
        if text in names
    ]
    assert ladders == []
