"""Rules AOTI610 to AOTI623: whether there is a plugin in a package, and how the package is laid out."""

from __future__ import annotations

from aoti_abi.records import TYPE_CHECKING
from aoti_inspect.rules.registry import RuleResult, about, package_rule
from aoti_inspect.wording import counted, some

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aoti_inspect.rules.registry import PackageContext


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
    for fact in context.noted("no-compiled-models"):
        what = f"it holds the exported program {', '.join(fact.names)}" if fact.names else "it holds none"
        yield about(
            fact,
            f"this PT2 archive has no AOTInductor model: {what}",
            "compile it with torch._inductor.aoti_compile_and_package",
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
    for fact in context.noted("model-without-library"):
        message = f"model {fact.subject!r} has no compiled library, {fact.details[0]}"
        yield about(fact, message, "export the package again; it was packed incompletely")


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
    for fact in context.noted("sources-only"):
        message = f"model {fact.subject!r} is C++ source to build (package_cpp_only); there is no library yet"
        remedy = "build it with its CMakeLists.txt, or export without aot_inductor.package_cpp_only"
        yield about(fact, message, remedy)


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
    for fact in context.noted("library-without-bytes"):
        yield about(fact, f"the library of model {fact.subject!r} is empty", "export the package again")


@package_rule("AOTI614", "several-libraries", "error")
def several_libraries(context: PackageContext) -> Iterator[RuleResult]:
    """A model has several libraries, so that which one is loaded depends on the loader.

    ## Why it matters
    Of several libraries PyTorch 2.13 loads the first, older versions the last; of several wrappers 2.13 loads
    none. Kernels may come as libraries too, but then exactly one is called `*.wrapper.so`.

    ## How it is checked
    The `.so` members of one model, of which more than one could be the plugin. Each is audited.

    ## How to fix it
    Export into a new package instead of adding to an old one.

    ## Reports it prevents
    A stale model that keeps answering after a new one was exported; an audit of one library where another is
    loaded.
    """
    for fact in context.noted("several-libraries"):
        what, taken = ("wrappers", "none") if fact.numbers[0] else ("libraries", "the first")
        yield about(
            fact,
            f"model {fact.subject!r} has {len(fact.names)} {what}: {some(fact.names)}; PyTorch 2.13 loads "
            f"{taken}, older versions the last",
            "pack each model under a name of its own",
        )


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
    for fact in context.noted("metadata-absent"):
        message = (
            f"model {fact.subject!r} has no {fact.details[0]}: PyTorch refuses it, and its device is "
            "not known"
        )
        yield about(fact, message, "export the package again; the JSON lies beside the library")


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
    remedy = "pass an artifact that was lowered with AOTInductor"
    for fact in context.noted("program-without-plugins"):
        what = f"its delegates are {', '.join(fact.details)}" if fact.details else "it has no delegates"
        yield about(fact, f"this program uses no AOTInductor plugin: {what}", remedy)
    for fact in context.noted("bundle-without-plugins"):
        others = counted(len(fact.names), "other library", "other libraries")
        what = f"no AOTInductor plugin, only {others}" if fact.names else "no library at all"
        yield about(fact, f"it holds {what}", remedy)


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
    for fact in context.noted("unreadable"):
        yield about(fact, f"{fact.subject!r} can't be read: {fact.details[0]}", "pack the artifact again")
    for name, reason in context.unread:
        yield RuleResult(f"{name}: {reason}", "pack the artifact again", (name,))


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
    for fact in context.noted("no-elf"):
        remedy = "fetch or build the library (git lfs pull for a pointer), and pack the artifact again"
        yield about(fact, f"{fact.subject!r} is no library, but {fact.details[0]}", remedy)


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
    for fact in context.noted("repeated-names"):
        message = (
            f"{counted(len(fact.names), 'member')} are there more than once; readers differ in which they "
            f"take: {some(fact.names)}"
        )
        yield about(fact, message, "pack the archive again, each name once")


@package_rule("AOTI621", "stray-data", "warning")
def stray_data(context: PackageContext) -> Iterator[RuleResult]:
    """The file has bytes before or after its declared content.

    ## Why it matters
    A download that was joined, a signature that was appended, or an attempt to be two kinds of file at
    once. Some readers accept that, others do not, or find another archive in the same file: an error where
    PyTorch is one of them.

    ## How it is checked
    Where the archive's end record or the program's header says the file ends, against its size; where the
    directory lies, against the offset in the end record, which PyTorch believes; whether a later end record,
    which PyTorch would take, follows the one that describes the archive.

    ## How to fix it
    Write the file again without them.

    ## Reports it prevents
    A file that one tool reads and another calls corrupt, or takes for another.
    """
    remedy = "copy the file again, or write it without what was added"
    package = context.artifact.kind in ("pt2", "exported program")
    later = context.noted("later-end-record")
    for fact in context.noted("bytes-after") if not later else ():
        yield about(fact, f"{fact.numbers[0]} bytes follow {fact.subject}", remedy)
    for fact in context.noted("bytes-before"):
        misled = package or bool(fact.within)
        message = f"{fact.numbers[0]} bytes precede the archive"
        if misled:
            message += ", and its directory is not at the offset that PyTorch reads it from"
        yield about(fact, message, remedy, "error" if misled else None)
    for fact in later:
        ours, last = fact.numbers
        message = f"its end record at byte {ours} is followed by another at byte {last}, which PyTorch takes"
        yield about(fact, message, remedy, "error")


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
    remedy = "write the package with torch._inductor.package_aoti"
    for fact in context.noted("no-common-folder"):
        message = "its members do not lie in one common folder, and PyTorch's own loader fails on that"
        yield about(fact, message, remedy)
    for fact in context.noted("several-folders"):
        only = fact.subject or "the top"
        yield about(fact, f"its members lie in {len(fact.names)} folders; only {only!r} is read", remedy)
    for fact in context.noted("marker-absent"):
        yield about(fact, f"it has no {fact.subject}, which PyTorch looks for", remedy)
    for fact in context.noted("marker-unknown"):
        shown, known = fact.details
        yield about(fact, f"its {fact.subject} is {shown!r}; only {known!r} is known", remedy)


@package_rule("AOTI623", "control-character-in-name", "error")
def control_character_in_name(context: PackageContext) -> Iterator[RuleResult]:
    """A member's name has a control character in it.

    ## Why it matters
    Tools that list names by lines, or match them with patterns, see other names than PyTorch, which takes
    every byte. No exporter writes such names.

    ## How it is checked
    Each name of the package, for the characters below space and DEL.

    ## How to fix it
    Find out who made the package; export it again.

    ## Reports it prevents
    A library that PyTorch loads and that no check looked at.
    """
    for fact in context.noted("control-characters"):
        number = counted(len(fact.names), "member")
        message = f"the names of {number} have control characters: {some(fact.names)}"
        yield about(fact, message, "export the package again; find out who made this one")
