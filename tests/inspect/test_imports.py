"""What a plugin asks of others, grouped once."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aoti_abi.symbols import PROXY_EXECUTOR
from aoti_inspect.artifacts.facts import read_facts
from aoti_inspect.elf.image import ElfImage
from aoti_inspect.elf.records import Symbol
from aoti_inspect.facts.imports import Imports


@pytest.fixture
def imports(elf_writer: Callable[..., Any]):
    """Return the imports of a small file whose undefined symbols are given as `Symbol` or by name."""

    def build(*undefined: Symbol | str, needed: tuple[str, ...] = ()) -> Imports:
        symbols = [
            item if isinstance(item, Symbol) else Symbol(item, "global", None, None) for item in undefined
        ]
        elf = ElfImage(elf_writer().build(), "test.so").facts()
        return Imports(elf._replace(undefined=tuple(symbols), needed=needed))

    return build


def test_strong_symbols_are_grouped_by_family_in_the_order_of_the_file(imports):
    found = imports(
        "Sleef_expf8_u10", "aoti_torch_b", "aoti_torch_a", "executorch_aoti_torch_c", "aoti_torch_b"
    )
    assert [symbol.name for symbol in found.of("shim")] == ["aoti_torch_b", "aoti_torch_a", "aoti_torch_b"]
    assert found.names("shim", "prefixed-shim") == ["aoti_torch_a", "aoti_torch_b", "executorch_aoti_torch_c"]
    assert found.names("sleef") == ["Sleef_expf8_u10"]
    assert found.of("openmp") == []


def test_weak_symbols_need_no_provider(imports):
    found = imports(Symbol("aoti_torch_a", "weak", None, None), PROXY_EXECUTOR)
    assert found.names("shim") == [PROXY_EXECUTOR]
    assert [symbol.name for symbol in found.required] == [PROXY_EXECUTOR]
    assert found.has("aoti_torch_a")


def test_what_every_library_has_is_not_required(imports):
    assert imports("_DYNAMIC", "__tls_get_addr", "memcpy").required[0].name == "memcpy"


def test_symbols_with_a_version_are_left_to_the_library_that_it_names(imports):
    found = imports(Symbol("_Znwm", "global", "GLIBCXX_3.4", "libstdc++.so.6"), "_ZdlPv")
    assert found.unversioned("c++") == ["_ZdlPv"]
    assert found.names("c++") == ["_ZdlPv", "_Znwm"]


def test_libraries_are_told_by_their_file_name_whatever_the_folder(imports):
    found = imports(needed=("/opt/torch/lib/libtorch_cpu.so", "libtorch_cpu.so.1", "/usr/lib/libstdc++.so.6"))
    assert found.libtorch == ("/opt/torch/lib/libtorch_cpu.so",)
    assert found.needs_libtorch
    assert found.needs_library("libstdc++") == ["/usr/lib/libstdc++.so.6"]
    assert not imports(needed=("libm.so.6",)).needs_libtorch


@pytest.mark.parametrize(
    ("undefined", "needed", "expected"),
    [
        ((), ("libcuda.so.1",), True),
        ((), ("/usr/local/cuda/lib64/libcudart.so.12",), True),
        (("cudaMalloc",), (), True),
        (("cuLaunchKernel",), (), True),
        ((Symbol("cudaFree", "weak", None, None),), (), True),
        (("curl_easy_init", "cumsum", "aoti_torch_device_type_cuda"), (), False),
    ],
)
def test_uses_cuda(imports, undefined, needed, expected):
    assert imports(*undefined, needed=needed).uses_cuda is expected


def test_only_a_plugin_that_was_compiled_for_cuda_calls_these(imports):
    calls = imports("cudaMalloc", "cudaGetDevice", "aoti_torch_create_cuda_stream_guard").cuda_calls
    assert calls == ["aoti_torch_create_cuda_stream_guard", "cudaMalloc"]
    assert imports("cudaGetDevice", "aoti_torch_device_type_cuda").cuda_calls == []


def test_the_proxy_executor_is_known_by_its_whole_name(imports):
    assert imports(PROXY_EXECUTOR).proxy_executor
    assert not imports("aoti_torch_proxy_executor_call_function_2").proxy_executor


def test_a_copy_with_other_symbols_has_other_imports(plugins: Path):
    facts = read_facts(str(plugins / "mlp.so"))
    assert facts.imports is facts.imports
    assert facts.imports.required
    changed = facts._replace(elf=facts.elf._replace(needed=(), undefined=()))
    assert changed.imports.required == ()


def test_facts_travel_without_their_imports(plugins: Path):
    facts = read_facts(str(plugins / "mlp.so"))
    copy = pickle.loads(pickle.dumps(facts))
    assert copy == facts
    assert "imports" not in vars(copy)
    assert copy.imports.names("shim") == facts.imports.names("shim")
