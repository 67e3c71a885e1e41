"""Targets: what a user may write, and what this machine says of itself."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aoti_abi.errors import AotiError, InvalidArgument
from aoti_inspect.facts.target import ISA_FLAGS, Target, local_target, parse_target

BASE = Target(glibc="2.36", machine="x86_64", isa=frozenset({"AVX2"}), local=True)


def test_given_values_replace_those_of_the_base() -> None:
    target = parse_target("glibc=2.35, glibcxx=3.4.30,sm=90", BASE)
    assert (target.glibc, target.glibcxx, target.sm) == ("2.35", "3.4.30", 90)
    assert target.machine == "x86_64"
    assert target.isa == frozenset({"AVX2"})


def test_another_machine_drops_what_this_one_says_of_itself() -> None:
    target = parse_target("machine=aarch64", BASE)
    assert target == Target(machine="aarch64")


def test_any_turns_a_comparison_off() -> None:
    target = parse_target("isa=any,glibc=any,machine=any", BASE)
    assert (target.isa, target.glibc, target.machine) == (None, None, None)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("isa=avx512", {"AVX512", "AVX2"}),
        ("isa=avx2", {"AVX2"}),
        ("isa=AVX2+AVX512_VNNI", {"AVX512_VNNI", "AVX512", "AVX2"}),
        ("isa=baseline", set()),
    ],
)
def test_an_instruction_set_brings_those_that_it_includes(text: str, expected: set[str]) -> None:
    assert parse_target(text, BASE).isa == frozenset(expected)


@pytest.mark.parametrize(
    ("text", "sm"), [("90", 90), ("sm_90", 90), ("9.0", 90), ("sm_90a", 90), ("120", 120)]
)
def test_compute_capability_in_every_spelling(text: str, sm: int) -> None:
    assert parse_target(f"sm={text}", BASE).sm == sm


@pytest.mark.parametrize(
    ("text", "machine"),
    [("amd64", "x86_64"), ("x86-64", "x86_64"), ("X86_64", "x86_64"), ("arm64", "aarch64"), ("i686", "i386")],
)
def test_machines_have_one_name(text: str, machine: str) -> None:
    assert parse_target(f"machine={text}", BASE).machine == machine


def test_another_name_of_this_machine_is_this_machine() -> None:
    assert parse_target("machine=amd64", BASE) == BASE


def test_several_gpus_are_refused_with_what_to_do() -> None:
    with pytest.raises(InvalidArgument) as caught:
        parse_target("sm=86+89", BASE)
    assert "run it once for each" in str(caught.value.cause)


def test_the_drivers_and_the_libraries_of_cuda() -> None:
    target = parse_target("driver=535.104.05,cuda=12.8", BASE)
    assert (target.driver, target.cuda) == ("535.104.05", "12.8")
    assert parse_target("driver=any", target).driver is None


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("glibs=2.35", "glibs"),
        ("glibc", "glibc"),
        ("glibc=", "glibc"),
        ("glibc=new", "new"),
        ("glibc=2..3", "2..3"),
        ("isa=mmx", "MMX"),
        ("sm=hopper", "hopper"),
        ("sm=9", "9"),
        ("sm=86+89", "86"),
        ("machine=pdp11", "pdp11"),
        ("driver=new", "new"),
        ("cuda=cu130", "cu130"),
        ("glibc=٢.٣", "٢"),
    ],
)
def test_a_malformed_target_is_one_error_that_names_it(text: str, word: str) -> None:
    with pytest.raises(InvalidArgument, match=word.replace(".", r"\.")) as caught:
        parse_target(text, BASE)
    assert caught.value.hint or caught.value.cause


@given(st.text(max_size=60))
def test_any_text_is_a_target_or_one_of_our_errors(text: str) -> None:
    try:
        target = parse_target(text, BASE)
    except AotiError:
        return
    assert isinstance(target, Target)


def test_this_machine_is_read_without_running_anything() -> None:
    script = (
        "import sys\n"
        "events = []\n"
        "sys.addaudithook(lambda event, _: events.append(event))\n"
        "from aoti_inspect.facts.target import local_target\n"
        "local_target()\n"
        "print([e for e in events if e.startswith(('subprocess.', 'os.exec', 'os.fork', 'os.posix_spawn', "
        "'os.spawn', 'os.system', 'ctypes.'))])"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-S", "-c", script], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout == "[]\n"
    target = local_target()
    assert target.local
    assert target.machine == os.uname().machine
    assert target.glibc is None or target.glibc.startswith("2.")
    assert target.isa is None or target.isa <= ISA_FLAGS.keys()
