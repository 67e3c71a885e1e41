r"""What a delegate's payload says: which keys hold the plugin and its weights.

ExecuTorch's AOTInductor backends put neither the plugin nor its weights into the delegate's payload; both are
*named data* of the program (or of a ``.ptd`` beside it), and the payload names the keys. Three kinds were
released, told apart by their first bytes (behaviours L10 and L11):

======================  ==========================================================================
payload                 meaning
======================  ==========================================================================
empty                   ``<method>_so_blob`` and ``<method>_weights_blob`` (ExecuTorch 1.1 to 1.3)
``so_key\nweights_key``   both keys as text (1.4)
``ETCUDAFQN`` + digit   binary: plugin variants by GPU, and each constant with a key of its own (1.5)
======================  ==========================================================================

All integers of the binary kind are little-endian and packed; a string is its length (u32) and UTF-8 bytes.
Everything here is total: any byte string gives a value, `InvalidProgram` or `NotSupported`.
"""

from __future__ import annotations

import struct

from aoti_abi.codes import DTYPES, DTYPES_BY_NAME, device_name, dtype_name
from aoti_abi.errors import InvalidProgram, NotSupported
from aoti_abi.records import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import Literal

#: What every binary payload starts with; the tenth byte is its version.
MAGIC_PREFIX = b"ETCUDAFQ"
_MAGIC = b"ETCUDAFQN"

# Limits of the backend's own parser: anything above is a damaged or hostile payload.
MAX_WEIGHTS = 1 << 20
MAX_VARIANTS = 256
MAX_DIMENSIONS = 64
#: Far above what the largest allowed number of weights needs.
MAX_BYTES = 1 << 28
#: The few element types that the parser knows, of all that `aoti_abi.codes` has.
_WEIGHT_DTYPES = frozenset(
    DTYPES_BY_NAME[name].code
    for name in ("uint8", "int8", "int16", "int32", "int64", "float16", "float32", "bool", "bfloat16")
)

#: Which of the fields that came and went each version has: (variant table, variant flags).
_LAYOUTS: dict[bytes, tuple[bool, bool]] = {
    b"0": (True, True),
    b"3": (False, False),
    b"4": (True, False),
    b"5": (True, True),
}
_DEVELOPMENT = frozenset((b"1", b"2"))


class Variant(NamedTuple):
    """One compiled plugin of a method.

    Attributes:
        so_key: the named data that holds it.
        target_sm: the compute capability that its machine code is for (90 for sm_90); 0 if it is not tied
            to one.
        ptx_compute: the compute capability of the PTX in it; 0 without PTX.
        fallback_only: never preferred for its machine code, only used through its PTX.
    """

    so_key: str
    target_sm: int = 0
    ptx_compute: int = 0
    fallback_only: bool = False


class WeightEntry(NamedTuple):
    """One constant, stored under a key of its own.

    Attributes:
        fqn: the name in the exported module (``layer.weight``).
        key: the named data that holds its storage.
        nbytes: bytes of that storage; the named data has exactly as many.
        dtype: a ``c10::ScalarType`` value.
        device_type: 0 for CPU, 1 for CUDA.
        offset: of the first element in the storage, in elements.
        sizes, strides: in elements.
    """

    fqn: str
    key: str
    nbytes: int
    dtype: int
    device_type: int
    offset: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]


class Payload(NamedTuple):
    """A delegate's payload, decoded.

    Attributes:
        kind: "legacy" (empty: keys follow from the method's name), "keys" (text) or "fqn" (binary).
        version: the version character of a binary payload ("3"); None for the others.
        variants: the plugins to choose from (`select_variant`), at least one.
        weights_key: the named data with all weights in one blob; None for "fqn".
        weights: the constants, each in its own named data; empty but for "fqn".
    """

    kind: Literal["legacy", "keys", "fqn"]
    version: str | None
    variants: tuple[Variant, ...]
    weights_key: str | None
    weights: tuple[WeightEntry, ...] = ()


def parse_payload(data: bytes | bytearray | memoryview, method_name: str = "") -> Payload:
    """Decode a delegate's payload.

    Args:
        data: the payload's bytes.
        method_name: the value of the ``method_name`` compile spec, which an empty payload's keys are made of.

    Raises:
        InvalidProgram: text without a newline or with an empty plugin key, a truncated or inconsistent
            binary payload, or bytes after its end.
        NotSupported: a binary payload of a version that is not known.
    """
    if len(data) > MAX_BYTES:
        raise InvalidProgram(f"the delegate's payload has {len(data)} bytes; the limit is {MAX_BYTES}")
    raw = bytes(data)
    if not raw:
        stem = f"{method_name}_" if method_name else ""
        return Payload("legacy", None, (Variant(f"{stem}so_blob"),), f"{stem}weights_blob")
    if raw.startswith(MAGIC_PREFIX):
        return _binary(raw)
    so_key, newline, weights_key = raw.partition(b"\n")
    if not newline:
        raise InvalidProgram(
            f"the delegate's payload ({len(raw)} bytes) is neither empty, nor two keys separated by a "
            "newline, nor binary weight metadata",
            hint="the program was damaged, or written by another backend than its id says: export it again",
        )
    # The runtime looks both up as C strings: writers may pad them with NUL.
    so_key, weights_key = so_key.partition(b"\0")[0], weights_key.partition(b"\0")[0]
    if not so_key:
        raise InvalidProgram("the delegate's payload names no plugin: its first line is empty")
    return Payload("keys", None, (Variant(_text(so_key)),), _text(weights_key))


def select_variant(variants: tuple[Variant, ...], device_sm: int | None) -> tuple[Variant, bool]:
    """Choose the plugin for a GPU (behaviour L11).

    One untargeted variant needs no GPU to choose. Otherwise the variant compiled for exactly this compute
    capability wins; else the one with the newest PTX that this GPU can still translate.

    Args:
        variants: of a `Payload`.
        device_sm: the GPU's compute capability as an integer (90), or None if there is none.

    Returns:
        The variant, and whether it has to go through its PTX.

    Raises:
        InvalidProgram: there are no variants.
        NotSupported: none fits; the message names the GPU and every variant.
    """
    if not variants:
        raise InvalidProgram("the payload lists no plugin")
    if len(variants) == 1 and variants[0].target_sm == 0:
        return variants[0], False
    offered = ", ".join(_describe(variant) for variant in variants)
    if device_sm is None:
        raise NotSupported(
            f"the plugin comes in variants for GPUs ({offered}) and no GPU was found to choose by",
            hint="name the compute capability to choose for, as in sm_90",
        )
    for variant in variants:
        if variant.target_sm == device_sm and not variant.fallback_only:
            return variant, False
    fitting = [variant for variant in variants if 0 < variant.ptx_compute <= device_sm]
    if not fitting:
        raise NotSupported(
            f"no variant of the plugin runs on sm_{device_sm}; there are: {offered}",
            hint="export again with this GPU among the targets, or with PTX for an older one",
        )
    return max(fitting, key=lambda variant: variant.ptx_compute), True


def _describe(variant: Variant) -> str:
    if variant.target_sm == 0:
        return "untargeted"
    ptx = f" with PTX compute_{variant.ptx_compute}" if variant.ptx_compute else ""
    return f"sm_{variant.target_sm}{ptx}{' (fallback)' if variant.fallback_only else ''}"


def _binary(raw: bytes) -> Payload:
    version = raw[len(_MAGIC) : len(_MAGIC) + 1]
    if not raw.startswith(_MAGIC) or version not in _LAYOUTS:
        name = _text(raw[: len(_MAGIC) + 1])
        if raw.startswith(_MAGIC) and not version:
            raise InvalidProgram("the delegate's weight metadata ends before its version")
        known = ", ".join(f"ETCUDAFQN{char.decode()}" for char in _LAYOUTS)
        what = "a development version that no release wrote" if version in _DEVELOPMENT else "not known"
        raise NotSupported(
            f"the delegate's weight metadata has version {name!r}, which is {what}; known: {known}",
            hint="export again with ExecuTorch 1.5, or use a newer aoti-toolkit",
        )
    reader = _Reader(raw, len(_MAGIC) + 1)
    has_variants, has_flags = _LAYOUTS[version]
    if has_variants:
        variants = _read_variants(reader, untargeted_allowed=version == b"0", has_flags=has_flags)
    else:
        variants = (Variant(reader.string("plugin key")),)
    (count,) = reader.unpack("<I", "number of weights")
    if count > MAX_WEIGHTS:
        raise InvalidProgram(
            f"the delegate's weight metadata claims {count} weights; the limit is {MAX_WEIGHTS}"
        )
    weights = tuple(_read_weight(reader) for _ in range(count))
    if reader.position != len(raw):
        raise InvalidProgram(
            f"{len(raw) - reader.position} bytes follow the end of the delegate's weight metadata",
        )
    return Payload("fqn", version.decode("ascii"), variants, None, weights)


def _read_variants(reader: _Reader, *, untargeted_allowed: bool, has_flags: bool) -> tuple[Variant, ...]:
    (count,) = reader.unpack("<I", "number of variants")
    if not 0 < count <= MAX_VARIANTS:
        raise InvalidProgram(
            f"the delegate's metadata claims {count} variants; 1 to {MAX_VARIANTS} are allowed"
        )
    variants: list[Variant] = []
    for _ in range(count):
        target_sm, ptx_compute = reader.unpack("<II", "variant")
        (flags,) = reader.unpack("<I", "variant flags") if has_flags else (0,)
        variant = Variant(reader.string("plugin key"), target_sm, ptx_compute, bool(flags & 1))
        name = _describe(variant)
        if flags & ~1:
            raise InvalidProgram(f"variant {name} has unknown flags {flags:#x}")
        if target_sm == 0 and not (untargeted_allowed and count == 1 and not flags):
            raise InvalidProgram("a variant names no GPU although there is more than one way to choose")
        if target_sm and ptx_compute > target_sm:
            raise InvalidProgram(f"variant {name} has PTX that is newer than its own target")
        if variant.fallback_only and not ptx_compute:
            raise InvalidProgram(f"variant {name} is a fallback without PTX")
        variants.append(variant)
    regular = [variant.target_sm for variant in variants if not variant.fallback_only]
    if len(set(regular)) != len(regular):
        raise InvalidProgram(f"two variants are for the same GPU: {', '.join(map(_describe, variants))}")
    if len(variants) - len(regular) > 1:
        raise InvalidProgram(f"more than one variant is the fallback: {', '.join(map(_describe, variants))}")
    if len(variants) > len(regular) and any(v.ptx_compute and not v.fallback_only for v in variants):
        raise InvalidProgram("a variant has PTX of its own although another one is the fallback")
    return tuple(variants)


def _read_weight(reader: _Reader) -> WeightEntry:
    fqn = reader.string("weight's name")
    key = reader.string("weight's key")
    nbytes, dtype, device_type, offset, rank = reader.unpack("<QiiqI", f"weight {fqn!r}")
    if dtype not in _WEIGHT_DTYPES:
        raise InvalidProgram(
            f"weight {fqn!r} has element type {dtype_name(dtype)}, which the backend does not take"
        )
    if device_type not in (0, 1):
        raise InvalidProgram(f"weight {fqn!r} is for {device_name(device_type)}; it must be cpu or cuda")
    if rank > MAX_DIMENSIONS:
        raise InvalidProgram(f"weight {fqn!r} claims {rank} dimensions; the limit is {MAX_DIMENSIONS}")
    sizes = reader.unpack(f"<{rank}q", f"sizes of {fqn!r}")
    strides = reader.unpack(f"<{rank}q", f"strides of {fqn!r}")
    if offset < 0 or any(value < 0 for value in sizes + strides):
        raise InvalidProgram(f"weight {fqn!r} has a negative size, stride or offset")
    entry = WeightEntry(fqn, key, nbytes, dtype, device_type, offset, sizes, strides)
    needed = view_nbytes(entry)
    if needed > nbytes:
        raise InvalidProgram(f"weight {fqn!r} reaches to byte {needed} of a storage of {nbytes}")
    return entry


def view_nbytes(entry: WeightEntry) -> int:
    """Return how many bytes of its storage a weight reaches, 0 for one without elements."""
    if 0 in entry.sizes:
        return 0
    last = entry.offset + sum(
        (size - 1) * stride for size, stride in zip(entry.sizes, entry.strides, strict=True)
    )
    return (last + 1) * DTYPES[entry.dtype].itemsize


class _Reader:
    """A cursor over packed little-endian data that never reads past its end."""

    def __init__(self, data: bytes, position: int) -> None:
        self.data = data
        self.position = position

    def unpack(self, layout: str, what: str) -> tuple[int, ...]:
        start = self.position
        self.position = start + struct.calcsize(layout)
        if self.position > len(self.data):
            raise InvalidProgram(f"the delegate's weight metadata ends inside its {what} (byte {start})")
        return struct.unpack_from(layout, self.data, start)

    def string(self, what: str) -> str:
        (length,) = self.unpack("<I", what)
        start = self.position
        self.position = start + length
        if self.position > len(self.data):
            raise InvalidProgram(f"the delegate's weight metadata ends inside its {what} (byte {start})")
        if not length:
            raise InvalidProgram(f"the delegate's weight metadata has an empty {what} (byte {start})")
        try:
            return self.data[start : self.position].decode("utf-8")
        except UnicodeDecodeError as error:
            raise InvalidProgram(f"the {what} at byte {start} is not UTF-8", cause=str(error)) from None


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")
