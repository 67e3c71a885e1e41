"""The parser of headers: what it takes for a declaration, and what it passes over."""

from __future__ import annotations

import pytest
from c_declarations import exported, without_comments
from hypothesis import given
from hypothesis import strategies as st


def texts(source: str, *macros: str) -> list[str]:
    return [item.text for item in (exported(source, macros) if macros else exported(source))]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("AOTI_TORCH_EXPORT int32_t f();", ["int32_t f()"]),
        ("AOTI_TORCH_EXPORT int32_t f(void);", ["int32_t f()"]),
        (
            "AOTI_TORCH_EXPORT AOTITorchError\nf(\n    A a,\n    const char** b\n);",
            ["AOTITorchError f(A a, const char** b)"],
        ),
        ("AOTI_TORCH_EXPORT E f(\n  int a, // the first, not b\n  /* c */ int d);", ["E f(int a, int d)"]),
        ("AOTI_TORCH_EXPORT E f(A* r // returns new reference\n);", ["E f(A* r)"]),
        ("// AOTI_TORCH_EXPORT E f(int a);", []),
        ("// continued \\\nAOTI_TORCH_EXPORT E f(int a);", []),
        ("/* AOTI_TORCH_EXPORT E f(int a); */ AOTI_TORCH_EXPORT E g();", ["E g()"]),
        ("/* no end AOTI_TORCH_EXPORT E f(int a);", []),
        ('const char* s = "/*"; AOTI_TORCH_EXPORT E f(int a); // */', ["E f(int a)"]),
        ('[[deprecated(\n  "f(int a); is deprecated")]]\nAOTI_TORCH_EXPORT E f(int a);', ["E f(int a)"]),
        ("AOTI_TORCH_EXPORT [[deprecated]] E f(int a);", ["E f(int a)"]),
        ('AOTI_TORCH_EXPORT __attribute__((deprecated("g()"))) E f(int a);', ["E f(int a)"]),
        ("AOTI_TORCH_EXPORT E f(int a) __attribute__((nonnull));", ["E f(int a)"]),
        ('#define AOTI_TORCH_EXPORT __attribute__((__visibility__("default")))\n', []),
        ("#define X(n) \\\n  AOTI_TORCH_EXPORT E n(int a);\nAOTI_TORCH_EXPORT E f();", ["E f()"]),
        ("template <typename T>\nAOTI_TORCH_EXPORT E f(T a);\nAOTI_TORCH_EXPORT E g();", ["E g()"]),
        (
            "AOTI_TORCH_EXPORT E f(void (*fn)(S*, uint64_t, uint64_t), bool on);",
            ["E f(void (*fn)(S*, uint64_t, uint64_t), bool on)"],
        ),
        (
            "AOTI_TORCH_EXPORT E f(c10::complex<float>* v, c10::Half * w);",
            ["E f(c10::complex<float>* v, c10::Half * w)"],
        ),
        ("AOTI_TORCH_EXPORT const char* f(int a);", ["const char* f(int a)"]),
        ("AOTI_TORCH_EXPORT E f(int a) { return g(a); }", ["E f(int a)"]),
        ("AOTI_TORCH_EXPORT E f(int a) noexcept;", ["E f(int a)"]),
        ("AOTI_TORCH_EXPORT int variable;", []),
        ("AOTI_TORCH_EXPORT E f(int a", []),
        ("E f(int a);", []),
        ("AOTI_TORCH_EXPORT_OTHER E f(int a);", []),
        ("AOTI_API AOTIRuntimeError\r\nf(int a);\r\n", ["AOTIRuntimeError f(int a)"]),
        ("AOTI_SHIM_EXPORT E f(Tensor* t);", ["E f(Tensor* t)"]),
    ],
)
def test_what_is_taken(source: str, expected: list[str]) -> None:
    assert texts(source) == expected


def test_a_return_type_marks_what_a_header_does_not() -> None:
    source = """
    using AOTIRuntimeError = int32_t;
    static AOTIRuntimeError last = 0;
    AOTIRuntimeError f(int a);
    AOTIRuntimeError g(
        int a) TRY({ return static_cast<AOTIRuntimeError>(f(a)); })
    AOTIRuntimeError h(int a) { return f(a); }
    """
    assert texts(source, "AOTIRuntimeError") == [
        "AOTIRuntimeError f(int a)",
        "AOTIRuntimeError g(int a)",
        "AOTIRuntimeError h(int a)",
    ]


@pytest.mark.parametrize(
    ("before", "after", "guard"),
    [
        ("#ifdef USE_CUDA", "#endif", "cuda"),
        ("#if defined(USE_XPU)", "#endif // USE_XPU", "xpu"),
        ("  #  ifdef USE_MPS", "#endif", "mps"),
        ("#ifdef USE_CUDA\n#if TORCH_FEATURE_VERSION >= 3", "#endif\n#endif", "cuda"),
        ("#ifdef USE_CUDA\n#endif", "", None),
        ("#ifdef USE_CUDA\n#else", "#endif", None),
        ("#ifndef USE_CUDA", "#endif", None),
        ("#if !defined(USE_CUDA)", "#endif", None),
        ("#if TORCH_FEATURE_VERSION >= TORCH_VERSION_2_12_0", "#endif", None),
        ("#if AT_MKLDNN_ENABLED()", "#endif", None),
        ("#ifdef OTHER\n#elif defined(USE_CUDA)", "#endif", "cuda"),
        ("#endif", "#endif", None),
    ],
)
def test_the_device_of_conditional_code(before: str, after: str, guard: str | None) -> None:
    source = f"{before}\nAOTI_TORCH_EXPORT E f();\n{after}\nAOTI_TORCH_EXPORT E g();\n"
    assert [(item.name, item.guard) for item in exported(source)] == [("f", guard), ("g", None)]


def test_what_no_compiler_sees_is_dropped() -> None:
    source = (
        "#if 0\nAOTI_TORCH_EXPORT E f();\n#else\nAOTI_TORCH_EXPORT E g();\n#endif\nAOTI_TORCH_EXPORT E h();"
    )
    assert texts(source) == ["E g()", "E h()"]


WORDS = st.sampled_from(
    [
        *("AOTI_TORCH_EXPORT ", "E ", "f", "(", ")", ";", "{", "}", "\n", "#if 0\n", "#endif\n"),
        *("#ifdef USE_CUDA\n", "//", "/*", "*/", '"', "'", "\\", "[[", "]]", "template <", ">"),
        *("__attribute__((", ",", "int a", "*", " "),
    ]
)


@given(st.lists(WORDS, max_size=40).map("".join))
def test_any_text_is_read(source: str) -> None:
    for item in exported(source):
        assert item.name.isidentifier()
        assert f"{item.name}(" in item.text.replace(" (", "(")
        assert not set(item.text) & set("\n\t;")


TYPES = st.sampled_from(
    ["int64_t", "const int64_t*", "AtenTensorHandle", "const char**", "c10::complex<float>*"]
)
NAMES = st.from_regex(r"[a-z]\w{0,8}", fullmatch=True).filter(lambda name: name.isascii())
SPACE = st.sampled_from([" ", "\n    ", " /* a, b) */ ", " // (;\n"])


@given(
    st.lists(
        st.tuples(NAMES, st.lists(st.tuples(TYPES, NAMES), max_size=4)),
        max_size=4,
        unique_by=lambda item: item[0],
    ),
    st.data(),
)
def test_declarations_are_found_however_they_are_laid_out(
    functions: list[tuple[str, list[tuple[str, str]]]], data: st.DataObject
) -> None:
    source = ""
    for name, parameters in functions:
        gap = data.draw(SPACE)
        inside = f",{gap}".join(f"{kind}{gap if gap.isspace() else ' '}{word}" for kind, word in parameters)
        source += f"AOTI_TORCH_EXPORT AOTITorchError{gap}{name}({gap}{inside}{gap});{gap}"
    assert texts(source) == [
        f"AOTITorchError {name}({', '.join(f'{kind} {word}' for kind, word in parameters)})"
        for name, parameters in functions
    ]


@given(st.text(max_size=80))
def test_comments_keep_their_lines(source: str) -> None:
    assert without_comments(source).count("\n") <= source.count("\n")
    assert without_comments(f"/*{source.replace('*/', '')}*/").strip() == ""
