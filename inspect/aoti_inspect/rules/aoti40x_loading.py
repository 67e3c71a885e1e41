"""Rules AOTI401 to AOTI404: the executable stack, and the version of glibc."""

from __future__ import annotations

from aoti_abi.records import TYPE_CHECKING
from aoti_abi.versions import parse_version
from aoti_inspect.facts.predicates import refuses_its_stack, wants_executable_stack
from aoti_inspect.facts.releases import GLIBC_ABI, GLIBC_FIRST
from aoti_inspect.facts.version_needs import newer_than
from aoti_inspect.rules.newer_versions import reports
from aoti_inspect.rules.registry import RuleResult, Unchecked, plugin_rule
from aoti_inspect.wording import listed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aoti_inspect.findings import Severity
    from aoti_inspect.rules.registry import PluginContext


_MEND = (
    "compile with aot_inductor.use_consts_asm_build=False (PyTorch 2.9 and later; the model needs a "
    "constant), or link with -Wl,-z,noexecstack, or clear the flag in a copy as aoti_loader does"
)


def _stack_severity(context: PluginContext) -> Severity:
    return "error" if refuses_its_stack(context.target, context.facts.elf) else "warning"


def _consequence(context: PluginContext) -> str:
    if _stack_severity(context) == "error":
        return f"glibc {context.target.glibc} refuses to load it"
    return "loading it makes the stacks of the process executable, and glibc 2.41 and later refuse to load it"


@plugin_rule("AOTI401", "executable-stack", "warning")
def executable_stack(context: PluginContext) -> Iterator[RuleResult]:
    """The plugin requires an executable stack.

    ## Why it matters
    glibc 2.41 and later refuse to `dlopen` such a library. Older ones comply, and make every stack of the
    process writable and executable at once, which undoes a basic protection. Plugins do not need it: PyTorch
    assembles the weights from a file without a `.note.GNU-stack` section, and the linker concludes that the
    stack must be executable. An error if the target's glibc is 2.41 or later, a warning below.

    ## How it is checked
    The flag PF_X of the program header PT_GNU_STACK.

    ## How to fix it
    Compile with `aot_inductor.use_consts_asm_build=False` (PyTorch 2.9 and later; it has an effect only if
    the model has constants), or link with `-Wl,-z,noexecstack`. `aoti_loader` clears the flag in its private
    copy.

    ## Reports it prevents
    "cannot enable executable stack as shared object requires: Invalid argument" after an upgrade of the
    system.
    """
    if context.facts.elf.executable_stack:
        yield RuleResult(
            f"requires an executable stack: {_consequence(context)}",
            _MEND,
            severity=_stack_severity(context),
        )


@plugin_rule("AOTI402", "no-stack-header", "warning")
def no_stack_header(context: PluginContext) -> Iterator[RuleResult]:
    """The file does not say whether it needs an executable stack, and the machine's default is yes.

    ## Why it matters
    Without PT_GNU_STACK the dynamic linker takes the machine's default, which is an executable stack on
    x86-64, 32-bit ARM and others; then AOTI401 holds. On aarch64 and RISC-V the default is the safe one.

    ## How it is checked
    There is no PT_GNU_STACK program header, and the machine is one of the former.

    ## How to fix it
    Link with `-Wl,-z,noexecstack`.

    ## Reports it prevents
    The same as AOTI401, for files that went through a tool which drops program headers.
    """
    elf = context.facts.elf
    if elf.executable_stack is None and wants_executable_stack(elf):
        yield RuleResult(
            f"has no PT_GNU_STACK header, which on {elf.header.machine_name} means an executable stack: "
            f"{_consequence(context)}",
            "link with -Wl,-z,noexecstack",
            severity=_stack_severity(context),
        )


@plugin_rule("AOTI403", "glibc-too-new", "error")
def glibc_too_new(context: PluginContext) -> Iterator[RuleResult | Unchecked]:
    """The plugin needs a `GLIBC_` version that the target's C library lacks.

    ## Why it matters
    The dynamic linker refuses the library at load. glibc can't be replaced by a file beside the plugin.

    ## How it is checked
    DT_VERNEED, not the section table, is compared with `--target glibc=2.35`, as numbers. The symbols that
    are bound to each version are named, and the distribution that first had it. Needs that are marked weak
    only give a warning at load, and are reported as information.

    ## How to fix it
    Compile on the oldest system that must load it, or in a container of it (manylinux images are made for
    that).

    ## Reports it prevents
    "version `GLIBC_2.38' not found (required by model.so)", and "too-recent versioned symbols" without a word
    on which symbols those are.
    """
    limit = context.target.glibc
    if limit is None:
        return
    found = newer_than(context.facts, "GLIBC_", limit)
    yield from reports(
        found,
        "glibc ",
        limit,
        GLIBC_FIRST.get,
        "compile it on the oldest system that must load it, or in a container of that system",
    )
    for need in context.facts.elf.version_needs:
        if not need.version.startswith("GLIBC_ABI_"):
            continue
        first = GLIBC_ABI.get(need.version)
        if first is None:
            yield Unchecked(f"which glibc first had {need.version} is not known")
        elif parse_version(first) > parse_version(limit):
            yield RuleResult(
                f"needs {need.version}, which glibc has since {first}, and the target has glibc {limit}",
                "link with -Wl,-z,nopack-relative-relocs",
                (need.version,),
            )


@plugin_rule("AOTI404", "glibc-private", "warning")
def glibc_private(context: PluginContext) -> Iterator[RuleResult]:
    """The plugin uses private symbols of glibc.

    ## Why it matters
    `GLIBC_PRIVATE` symbols may change with any build of glibc, without notice. The plugin is tied to the very
    C library that it was linked with.

    ## How it is checked
    DT_VERNEED names the version `GLIBC_PRIVATE`.

    ## How to fix it
    Replace the functions by public ones; usually a statically linked archive brought them in.

    ## Reports it prevents
    "symbol lookup error ... version GLIBC_PRIVATE" after a security update.
    """
    for need in context.facts.elf.version_needs:
        if need.version == "GLIBC_PRIVATE":
            yield RuleResult(
                f"uses private symbols of {need.library}, which any update may change: "
                f"{listed(need.symbols)}",
                "find the archive that brought them in, and link its shared library instead",
                need.symbols or (need.version,),
            )
