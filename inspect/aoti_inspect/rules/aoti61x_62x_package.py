"""Rules AOTI610 to AOTI622: whether there is a plugin in a package, and how the package is laid out."""

from __future__ import annotations

from aoti_abi.records import TYPE_CHECKING
from aoti_inspect.rules.package_scope import of_package
from aoti_inspect.rules.registry import package_rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aoti_inspect.rules.registry import PackageContext, RuleResult


@package_rule("AOTI610", "no-aoti-model", "error")
def no_aoti_model(context: PackageContext) -> Iterator[RuleResult]:
    """The PT2 archive holds no model that AOTInductor compiled.

    ## Why it matters
    The extension is the same, the content is not: `torch.export.save` writes an exported program, which
    has to be compiled before anything can load it as a plugin.

    ## How it is checked
    No member lies below `data/aotinductor/`. If there are exported programs (`models/*.json`), they are
    named.

    ## How to fix it
    Compile the exported program: `torch._inductor.aoti_compile_and_package(torch.export.load(path))`.

    ## Reports it prevents
    Loaders that fail with "No such file" or "outdated pt2 file" on a file that is intact, but of another
    kind.
    """
    yield from of_package(
        context, "no-aoti-model", "compile it with torch._inductor.aoti_compile_and_package"
    )


@package_rule("AOTI611", "no-library", "error")
def no_library(context: PackageContext) -> Iterator[RuleResult]:
    """A model of the package has no compiled library.

    ## Why it matters
    PyTorch's loader then looks for sources and flags to compile, and fails with the name of a file in a
    temporary folder that nobody knows.

    ## How it is checked
    The model's folder has no `.so`, and none of the files of a compile-only package.

    ## How to fix it
    Export the package again, and copy it whole.

    ## Reports it prevents
    `..._compile_flags.json: No such file` from a package loader.
    """
    yield from of_package(context, "no-library", "export the package again; it was packed incompletely")


@package_rule("AOTI612", "compile-only", "error")
def compile_only(context: PackageContext) -> Iterator[RuleResult]:
    """The package holds C++ source to build, not a library.

    ## Why it matters
    It was exported with `aot_inductor.package_cpp_only=True`, to be built separately. It cannot be loaded as
    it is.

    ## How it is checked
    There is no `.so`, but a `CMakeLists.txt` or compile flags.

    ## How to fix it
    Build the library with the CMakeLists.txt in it, or export again without that option.

    ## Reports it prevents
    Loading a package on a machine without a compiler, or with another one.
    """
    yield from of_package(
        context,
        "compile-only",
        "build it with its CMakeLists.txt, or export without aot_inductor.package_cpp_only",
    )


@package_rule("AOTI613", "empty-library", "error")
def empty_library(context: PackageContext) -> Iterator[RuleResult]:
    """The library of a model has no bytes.

    ## Why it matters
    Linking or packing failed and nobody looked at the exit status; the package still has the right
    members.

    ## How it is checked
    The size that the archive declares for the `.so`.

    ## How to fix it
    Export the package again and look at the compiler's messages; a full disk is a usual cause.

    ## Reports it prevents
    "file too short" from the dynamic linker, without a name that means something.
    """
    yield from of_package(context, "empty-library", "export the package again")


@package_rule("AOTI614", "several-libraries", "warning")
def several_libraries(context: PackageContext) -> Iterator[RuleResult]:
    """A model has several libraries, so that which one is loaded depends on the reader.

    ## Why it matters
    PyTorch's loader takes the one that it meets last. Kernels may come as libraries too, but then exactly
    one is called `*.wrapper.so`.

    ## How it is checked
    The `.so` members of one model, of which more than one could be the wrapper.

    ## How to fix it
    Export into a new package instead of adding to an old one.

    ## Reports it prevents
    A stale model that keeps answering after a new one was exported.
    """
    yield from of_package(context, "several-libraries", "pack each model under a name of its own")


@package_rule("AOTI615", "missing-metadata", "error")
def missing_metadata(context: PackageContext) -> Iterator[RuleResult]:
    """A model has no metadata, so that PyTorch refuses to load it.

    ## Why it matters
    `<stem>_metadata.json` says which device, machine and instruction sets the library was compiled for.
    PyTorch's loader needs the device from it.

    ## How it is checked
    The member with the library's name and `_metadata.json`.

    ## How to fix it
    Export again. If the package was put together by hand, add the JSON that `aot_compile` left beside the
    library.

    ## Reports it prevents
    "No device information found." and "File not found" from PyTorch's loader.
    """
    yield from of_package(
        context, "missing-metadata", "export the package again; the JSON lies beside the library"
    )


@package_rule("AOTI616", "no-plugin", "error")
def no_plugin(context: PackageContext) -> Iterator[RuleResult]:
    """The artifact contains no AOTInductor plugin.

    ## Why it matters
    There is nothing to inspect or load: a program that other backends run, or a folder or archive with
    other libraries.

    ## How it is checked
    A program's delegates, by id and by what their payload says; a library's dynamic strings, for the
    container API.

    ## How to fix it
    Pass the right file. A program has to be lowered with the CUDA or AOTInductor partitioner.

    ## Reports it prevents
    Looking for a problem in a plugin that is not there.
    """
    yield from of_package(context, "no-plugin", "pass an artifact that was lowered with AOTInductor")


@package_rule("AOTI617", "unreadable-member", "error")
def unreadable_member(context: PackageContext) -> Iterator[RuleResult]:
    """A member of the artifact cannot be read.

    ## Why it matters
    It is damaged, encrypted, or compressed by an unsupported method. Its content was not inspected.

    ## How it is checked
    The archive's directory against the member's own header, its size after inflating, and its checksum.

    ## How to fix it
    Pack or download the artifact again.

    ## Reports it prevents
    An archive that "opens fine" and fails when one member is needed.
    """
    yield from of_package(context, "unreadable-member", "pack the artifact again")


@package_rule("AOTI618", "not-elf", "error")
def not_elf(context: PackageContext) -> Iterator[RuleResult]:
    """A file with a library's name is not a library.

    ## Why it matters
    It cannot be loaded. An empty file, a Git LFS pointer or half a file stands where a library should be: the
    artifact was packed from a checkout or a build that was not complete.

    ## How it is checked
    The first bytes of each member called `*.so` or `*.so.N`: a file without a complete ELF header is
    described by what it is instead.

    ## How to fix it
    Fetch or build the library (`git lfs pull` for a pointer), and pack the artifact again.

    ## Reports it prevents
    Wheels that every check passes, since "not ELF" was read as "nothing to check", and that fail on import.
    """
    yield from of_package(
        context,
        "not-elf",
        "fetch or build the library (git lfs pull for a pointer), and pack the artifact again",
    )


@package_rule("AOTI620", "duplicate-member", "error")
def duplicate_member(context: PackageContext) -> Iterator[RuleResult]:
    """The archive has two members with the same name.

    ## Why it matters
    Readers differ in which of them they use, so what was inspected may not be what gets loaded. PyTorch
    extracts both, one over the other.

    ## How it is checked
    The names in the archive's directory.

    ## How to fix it
    Pack it again into a new file; appending to an existing archive is the usual cause.

    ## Reports it prevents
    A model that differs between two loaders of the same file.
    """
    yield from of_package(context, "duplicate-member", "pack the archive again, each name once")


@package_rule("AOTI621", "stray-data", "warning")
def stray_data(context: PackageContext) -> Iterator[RuleResult]:
    """The file has bytes before or after its declared content.

    ## Why it matters
    A download that was joined, a signature that was appended, or an attempt to be two kinds of file at
    once. Some readers accept that, others do not.

    ## How it is checked
    Where the archive's end record or the program's header says the file ends, against its size.

    ## How to fix it
    Write the file again without them.

    ## Reports it prevents
    A file that one tool reads and another calls corrupt.
    """
    yield from of_package(context, "trailing-data", "copy the file again, or write it without what was added")
    yield from of_package(context, "leading-data", "copy the file again, or write it without what was added")


@package_rule("AOTI622", "archive-layout", "warning")
def archive_layout(context: PackageContext) -> Iterator[RuleResult]:
    """The package is laid out in a way that PyTorch's own loader does not accept.

    ## Why it matters
    PyTorch expects every member in one common folder, with `archive_format` "pt2" and `archive_version` 0 in
    it. The inspector reads it anyway.

    ## How it is checked
    The members' first folder, and the three small files that describe the archive.

    ## How to fix it
    Write packages with PyTorch, not by zipping a folder.

    ## Reports it prevents
    "Loading outdated pt2 file. Please regenerate" followed by a list of files.
    """
    for kind in ("no-prefix", "mixed-prefixes", "no-archive-format", "archive-version"):
        yield from of_package(context, kind, "write the package with torch._inductor.package_aoti")
