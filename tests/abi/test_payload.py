"""Delegate payloads: three released kinds, their versions, and everything that is none of them."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aoti_abi.errors import AotiError, InvalidProgram, NotSupported
from aoti_abi.payload import MAX_WEIGHTS, Payload, Variant, parse_payload, select_variant, view_nbytes


def text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack("<I", len(raw)) + raw


def weight(
    *,
    fqn="layer.weight",
    key="k",
    nbytes=24,
    dtype=6,
    device=1,
    offset=0,
    sizes=(2, 3),
    strides=(3, 1),
    rank=None,
) -> bytes:
    rank = len(sizes) if rank is None else rank
    head = struct.pack("<QiiqI", nbytes, dtype, device, offset, rank)
    return text(fqn) + text(key) + head + struct.pack(f"<{len(sizes) + len(strides)}q", *sizes, *strides)


#: A scalar, the last of the four bfloat16 of its storage.
SCALAR = weight(fqn="bias", key="b", nbytes=8, dtype=15, device=0, offset=1, sizes=(), strides=())


def fqn3(*weights: bytes, so_key="so", count=None) -> bytes:
    return (
        b"ETCUDAFQN3"
        + text(so_key)
        + struct.pack("<I", len(weights) if count is None else count)
        + b"".join(weights)
    )


def variants(version: int, *entries: tuple, weights=()) -> bytes:
    out = b"ETCUDAFQN%d" % version + struct.pack("<I", len(entries))
    for sm, ptx, key, *flags in entries:
        out += struct.pack("<II", sm, ptx)
        if version in (0, 5):
            out += struct.pack("<I", flags[0] if flags else 0)
        out += text(key)
    return out + struct.pack("<I", len(weights)) + b"".join(weights)


def test_L10_text_names_both_keys():
    payload = parse_payload(b"abc_so_blob\ndef_weights_blob")
    assert payload == Payload("keys", None, (Variant("abc_so_blob"),), "def_weights_blob")


def test_L10_only_the_first_newline_separates():
    assert parse_payload(b"so\nweights\nrest").weights_key == "weights\nrest"


@pytest.mark.parametrize(
    ("method", "so_key", "weights_key"),
    [("decode", "decode_so_blob", "decode_weights_blob"), ("", "so_blob", "weights_blob")],
)
def test_L10_Q5_empty_payload_follows_the_method_name(method, so_key, weights_key):
    payload = parse_payload(b"", method)
    assert (payload.kind, payload.variants[0].so_key, payload.weights_key) == ("legacy", so_key, weights_key)


def test_L10_without_a_newline_is_malformed():
    with pytest.raises(InvalidProgram, match="neither empty, nor two keys"):
        parse_payload(b"missing_the_newline_separator")


@pytest.mark.parametrize("data", [b"\nweights", b"\0padded\nweights"])
def test_L10_an_empty_plugin_key_is_malformed(data):
    with pytest.raises(InvalidProgram, match="names no plugin"):
        parse_payload(data)


def test_L10_nul_padding_ends_a_key():
    payload = parse_payload(b"so\nweights\0\0\0\0")
    assert payload.weights_key == "weights"


def test_L11_version_3_lists_weights():
    payload = parse_payload(fqn3(weight(), SCALAR))
    assert (payload.kind, payload.version, payload.weights_key) == ("fqn", "3", None)
    assert payload.variants == (Variant("so"),)
    first, second = payload.weights
    assert first == ("layer.weight", "k", 24, 6, 1, 0, (2, 3), (3, 1))
    assert (second.sizes, view_nbytes(second)) == ((), 4)


def test_L11_version_3_may_have_no_weights():
    assert parse_payload(fqn3()).weights == ()


def test_L11_a_weight_without_elements_needs_no_bytes():
    assert parse_payload(fqn3(weight(nbytes=0, sizes=(0, 3)))).weights[0].nbytes == 0


@pytest.mark.parametrize("version", [4, 5, 0])
def test_L11_versions_with_variants(version):
    payload = parse_payload(variants(version, (80, 0, "a"), (120, 0, "b"), weights=(weight(),)))
    assert [v.target_sm for v in payload.variants] == [80, 120]
    assert payload.version == str(version)
    assert len(payload.weights) == 1


def test_L11_version_5_has_a_fallback():
    payload = parse_payload(variants(5, (80, 0, "native"), (80, 80, "fallback", 1)))
    assert payload.variants[1] == Variant("fallback", 80, 80, True)


def test_L11_N15_version_0_may_be_untargeted():
    payload = parse_payload(variants(0, (0, 0, "so")))
    assert select_variant(payload.variants, None) == (Variant("so"), False)


@pytest.mark.parametrize("name", ["ETCUDAFQN1", "ETCUDAFQN2", "ETCUDAFQN9", "ETCUDAFQX3"])
def test_L11_an_unknown_version_is_named(name):
    with pytest.raises(NotSupported, match=name):
        parse_payload(name.encode() + b"\0" * 40)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"ETCUDAFQN", "ends before its version"),
        (fqn3(weight())[:-1], "ends inside"),
        (fqn3(weight()) + b"\0", "1 bytes follow"),
        (fqn3(so_key=""), "empty plugin key"),
        (fqn3(weight(fqn="")), "empty weight's name"),
        (fqn3(weight(key="")), "empty weight's key"),
        (fqn3(weight(dtype=7)), "float64"),
        (fqn3(weight(device=2)), "cpu or cuda"),
        (fqn3(weight(rank=65)), "65 dimensions"),
        (fqn3(weight(sizes=(2, -3))), "negative"),
        (fqn3(weight(strides=(-3, 1))), "negative"),
        (fqn3(weight(offset=-1)), "negative"),
        (fqn3(weight(offset=1)), "reaches to byte 28"),
        (fqn3(weight(nbytes=23)), "reaches to byte 24"),
        (fqn3(weight(sizes=(1 << 62, 3))), "reaches to byte"),
        (fqn3(count=MAX_WEIGHTS + 1), "limit"),
        (b"ETCUDAFQN3" + struct.pack("<I", 2) + b"\xff\xff" + struct.pack("<I", 0), "not UTF-8"),
        (variants(4), "0 variants"),
        (b"ETCUDAFQN4" + struct.pack("<I", 257), "257 variants"),
        (variants(4, (0, 0, "a")), "names no GPU"),
        (variants(4, (80, 90, "a")), "newer than its own target"),
        (variants(4, (80, 0, "a"), (80, 0, "b")), "same GPU"),
        (variants(5, (80, 0, "a", 1)), "fallback without PTX"),
        (variants(5, (80, 0, "a", 2)), "unknown flags"),
        (variants(5, (80, 80, "a", 1), (90, 90, "b", 1)), "more than one"),
        (variants(5, (80, 80, "a", 1), (90, 90, "b", 0)), "PTX of its own"),
    ],
)
def test_L11_N14_damaged_metadata_is_refused(data, words):
    with pytest.raises(InvalidProgram, match=words):
        parse_payload(data)


VARIANTS = (Variant("a", 90, 90), Variant("b", 80, 80), Variant("c", 120, 0))


@pytest.mark.parametrize(
    ("sm", "key", "ptx"),
    [(120, "c", False), (90, "a", False), (80, "b", False), (100, "a", True), (86, "b", True)],
)
def test_L11_exact_target_first_then_the_newest_ptx_that_fits(sm, key, ptx):
    variant, through_ptx = select_variant(VARIANTS, sm)
    assert (variant.so_key, through_ptx) == (key, ptx)


def test_L11_N17_no_fitting_variant_names_the_gpu_and_the_variants():
    with pytest.raises(NotSupported, match=r"sm_75.*sm_90 with PTX compute_90.*sm_120"):
        select_variant(VARIANTS, 75)


def test_L11_a_targeted_variant_needs_a_gpu():
    with pytest.raises(NotSupported, match="no GPU was found"):
        select_variant(VARIANTS, None)


def test_L11_a_fallback_is_never_chosen_for_its_machine_code():
    both = (Variant("fallback", 80, 80, True), Variant("native", 80))
    assert select_variant(both, 80) == (both[1], False)
    assert select_variant(both[:1], 80) == (both[0], True)


def test_L11_nothing_to_choose_from():
    with pytest.raises(InvalidProgram, match="no plugin"):
        select_variant((), 80)


@given(
    st.binary(max_size=200),
    st.sampled_from([b"", b"ETCUDAFQN3", b"ETCUDAFQN4", b"ETCUDAFQN5", b"ETCUDAFQN0"]),
)
def test_L11_any_bytes_give_a_payload_or_one_of_our_errors(data, start):
    try:
        payload = parse_payload(start + data, "m")
    except AotiError as error:
        assert str(error)
    else:
        assert payload.variants


@given(st.integers(0, 400), st.integers(0, 255))
def test_L11_a_changed_byte_is_decoded_or_refused(position, value):
    data = bytearray(fqn3(weight(), SCALAR))
    data[position % len(data)] = value
    try:
        parse_payload(data)
    except AotiError as error:
        assert str(error)
