"""Where a plugin's constants are, told without reading them.

Every plugin that Inductor makes has the symbol ``_binary_constants_bin_start``. What is there depends on how
the plugin was compiled (``torch/_inductor/codecache.py`` and
``torch/csrc/inductor/aoti_runtime/model_base.h``, since PyTorch 2.2):

* the constants themselves, up to ``_binary_constants_bin_end`` or for as many bytes as the symbol has;
* for weights that are mapped from the file's own tail (USE_MMAP_SELF): two 64-bit words, the length of the
  tail and a random number that must be the tail's last word; the tail begins on a multiple of 16 KiB;
* for weights in a blob of their own (USE_MMAP_EXTERNAL, ``binary_blob``): one 64-bit word, the blob's length;
* nothing, or one byte of padding, where there are no constants.
"""

from __future__ import annotations

from aoti_abi.records import TYPE_CHECKING
from aoti_inspect.elf.format import STT_OBJECT
from aoti_inspect.facts.records import Weights

if TYPE_CHECKING:
    from aoti_inspect.elf.image import ElfImage

START = "_binary_constants_bin_start"
END = "_binary_constants_bin_end"
#: The tail is mapped, so it begins on a multiple of the largest page size.
TAIL_ALIGN = 0x4000
#: What a plugin says when a blob is missing, or its tail is wrong: compiled in only for that kind of weights.
_EXTERNAL_TEXT = b"Constants are not mmap'd"
_APPENDED_TEXT = b"weights_offset must be aligned"
_WORD = 8
#: Lengths above this are no lengths.
_MAX_LENGTH = 1 << 48
_NO_WEIGHTS = Weights("none", 0, 0, None, None, None, None)


def find_weights(image: ElfImage) -> Weights:
    """Say where the constants are.

    Errors are those of `ElfImage`; what doesn't fit together is noted as an anomaly of the image.
    """
    start = image.find(START)
    if start is None:
        return _NO_WEIGHTS
    end = image.find(END)
    # With use_consts_asm_build=False the constants are a sized C++ array and the end is not defined; such an
    # array lies in .data whether a run mutates it or not.
    size = start.size if start.type == STT_OBJECT or end is None else end.value - start.value
    segment = image.space.segment_of(start.value)
    if size <= 1:
        return _NO_WEIGHTS
    if segment is None or size > image.space.available(start.value):
        image.note(f"the constants ({size} bytes at {start.value:#x}) are not all in the file")
        return _NO_WEIGHTS
    offset = segment.offset + start.value - segment.address
    order = image.layout.byte_order
    if size in (_WORD, 2 * _WORD):
        raw = image.read_at_address(start.value, size)
        words = [int.from_bytes(raw[at : at + _WORD], order) for at in range(0, size, _WORD)]
        if 0 < words[0] < _MAX_LENGTH:
            if len(words) == 1 and image.contains(_EXTERNAL_TEXT):
                return Weights("external", 0, 0, words[0], None, None, None)
            if len(words) == 2 and (image.contains(_APPENDED_TEXT) or _tail_is_there(image, *words)):
                return _appended(image, *words)
    mutable = None if start.type == STT_OBJECT else "W" in segment.flags
    return Weights("embedded", offset, size, None, None, None, mutable)


def _tail_is_there(image: ElfImage, length: int, magic: int) -> bool:
    last = image.source.read(image.source.size - _WORD, _WORD)
    return length <= image.source.size and int.from_bytes(last, image.layout.byte_order) == magic


def _appended(image: ElfImage, length: int, magic: int) -> Weights:
    size = image.source.size
    offset = size - length
    last_byte = max(
        (item.offset + item.file_size for item in image.segments if item.type == "LOAD"), default=0
    )
    if offset < last_byte or length < _WORD:
        but = "the file has no room for them" if offset < last_byte else "their magic number alone has 8"
        image.note(f"the plugin expects {length} bytes of weights after its end, but {but}")
        return Weights("appended", 0, 0, length, magic, False, None)
    magic_ok = _tail_is_there(image, length, magic)
    if offset % TAIL_ALIGN:
        image.note(
            f"the weights after the plugin's end begin at {offset:#x}, which is not a multiple of 16 KiB"
        )
    # The magic number is the last word of the tail, and no weight.
    return Weights("appended", offset, length - _WORD, length, magic, magic_ok, None)
