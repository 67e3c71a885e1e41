"""Malformed entry arrays from real plugins: compiled, loaded, called through the C ABI."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import pytest

import aoti_loader
from aoti_abi.entries import Entry, extract_entries
from aoti_abi.errors import InvalidProgram

if TYPE_CHECKING:
    from collections.abc import Callable

EXTRACT = "AOTInductorModelContainerExtractConstantsMapEntries"


def extract(path: str) -> tuple[Entry, ...]:
    with aoti_loader.load(path, warn=False) as plugin:
        container = ctypes.c_void_p()
        create = plugin.functions["AOTInductorModelContainerCreateWithDevice"]
        assert create(ctypes.byref(container), 1, b"cpu", None) == 0
        try:
            return extract_entries(
                plugin.functions[EXTRACT], container.value or 0, last_error=plugin.last_error
            )
        finally:
            plugin.functions["AOTInductorModelContainerDelete"](container)


def test_L3_entries_are_read(plugin: Callable[..., str]) -> None:
    assert extract(plugin(ENTRIES="OK")) == (Entry("a.weight", 16), Entry("a.bias", 32))


def test_L6_a_null_array_with_count_0_is_empty(plugin: Callable[..., str]) -> None:
    assert extract(plugin(ENTRIES="EMPTY")) == ()


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("NULL_ARRAY", "answers 2 constant entries with a null array"),
        ("NULL_NAME", "name of constant entry 1 is null"),
        ("NULL_HANDLE", r"entry 1 \('a.bias'\) has a null handle"),
        ("HUGE", "claims 18446744073709551615 constant entries"),
        ("DUPLICATE", "entry 1 repeats the name 'a.weight'"),
        ("NOT_UTF8", "constant entry 0 is not UTF-8"),
        ("WILD", "runs out of readable memory"),
    ],
)
def test_L6_R9_malformed_replies_are_rejected(plugin: Callable[..., str], mode: str, words: str) -> None:
    with pytest.raises(InvalidProgram, match=words):
        extract(plugin(ENTRIES=mode))


def test_L6_an_error_keeps_the_plugins_own_text(plugin: Callable[..., str]) -> None:
    with pytest.raises(InvalidProgram, match="could not list its constants") as caught:
        extract(plugin(ENTRIES="ERROR"))
    assert caught.value.cause == "the map is on holiday"


def test_L3_the_map_function_is_never_bound(plugin: Callable[..., str]) -> None:
    with aoti_loader.load(plugin(), warn=False) as loaded:
        assert "AOTInductorModelContainerExtractConstantsMap" in loaded.facts.elf.exports.container
        assert "AOTInductorModelContainerExtractConstantsMap" not in loaded.functions
