"""Rules AOTI430 to AOTI433: the type and flags of the file, and the metadata beside it."""

from __future__ import annotations

from aoti_abi.records import TYPE_CHECKING
from aoti_inspect.facts.predicates import cuda_calls, not_a_library
from aoti_inspect.rules.registry import RuleResult, plugin_rule
from aoti_inspect.wording import counted, listed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aoti_inspect.findings import Severity
    from aoti_inspect.rules.registry import PluginContext


@plugin_rule("AOTI430", "static-tls", "warning")
def static_tls(context: PluginContext) -> Iterator[RuleResult]:
    """The plugin needs space in the static TLS block.

    ## Why it matters
    Libraries that are opened with `dlopen` share what is left of that block, a few hundred bytes. When it is
    exhausted, `dlopen` fails, depending on what else was loaded before.

    ## How it is checked
    The flag DF_STATIC_TLS.

    ## How to fix it
    Compile without `-ftls-model=initial-exec`, and with `-fPIC`. As a stopgap: load the plugin first, or set
    `GLIBC_TUNABLES=glibc.rtld.optional_static_tls=...`.

    ## Reports it prevents
    "cannot allocate memory in static TLS block", which goes away when imports are reordered.
    """
    if "STATIC_TLS" in context.facts.elf.flags:
        yield RuleResult(
            "needs space in the static TLS block, which may be exhausted when it is opened",
            "compile with -fPIC and without -ftls-model=initial-exec",
        )


@plugin_rule("AOTI431", "no-delete", "info")
def no_delete(context: PluginContext) -> Iterator[RuleResult]:
    """The file is marked never to be unloaded.

    ## Why it matters
    `dlclose` does nothing for it: its memory and its threads' data stay until the process ends.

    ## How it is checked
    The flag DF_1_NODELETE.

    ## How to fix it
    Link without `-Wl,-z,nodelete` if the host must be able to unload it.

    ## Reports it prevents
    Memory that stays after a model was closed.
    """
    if "NODELETE" in context.facts.elf.flags:
        yield RuleResult("is marked NODELETE: dlclose never unloads it", "link without -Wl,-z,nodelete")


@plugin_rule("AOTI432", "not-loadable", "error")
def not_loadable(context: PluginContext) -> Iterator[RuleResult]:
    """The file is an ELF file that `dlopen` cannot load.

    ## Why it matters
    Object files, core files, static and position-independent executables have the same format as shared
    libraries; glibc 2.30 and later refuse executables of any kind.

    ## How it is checked
    The type of the ELF header, the presence of PT_DYNAMIC, and the flag DF_1_PIE.

    ## How to fix it
    Pass the shared library; link with `-shared`.

    ## Reports it prevents
    "cannot dynamically load position-independent executable" and "only ET_DYN and ET_EXEC can be loaded".
    """
    elf = context.facts.elf
    what = not_a_library(elf)
    if what:
        damaged = elf.header.type == "DYN" and not elf.is_dynamic
        yield RuleResult(
            what,
            "link it with -shared"
            + ("; if it is the right file, it was truncated or stripped too far" if damaged else ""),
        )


@plugin_rule("AOTI433", "metadata-disagrees", "warning")
def metadata_disagrees(context: PluginContext) -> Iterator[RuleResult]:
    """The metadata beside the plugin contradicts the plugin.

    ## Why it matters
    PyTorch's loaders choose the device by the metadata, and only warn about the machine. Metadata that belong
    to another file lead to the wrong runner, or to checks against the wrong values. An error if they name
    another machine: what they say about instruction sets is then about another processor, too.

    ## How it is checked
    `AOTI_MACHINE` is compared with the ELF header, which is the authority (a warning with
    `--target machine=any`); `AOTI_DEVICE_KEY` with the CUDA functions that are called;
    `AOTI_COMPUTE_CAPABILITY` with the GPU code in the file.

    ## How to fix it
    Keep a plugin and its `*_metadata.json` together; make the package again.

    ## Reports it prevents
    "Unsupported device key", and GPU models that are run on the CPU's runner.
    """
    plugin = context.facts
    metadata = plugin.metadata or {}
    machine = metadata.get("AOTI_MACHINE")
    severity: Severity = "warning" if context.target.machine is None else "error"
    if machine and machine != plugin.elf.header.machine_name:
        yield RuleResult(
            f"its metadata says AOTI_MACHINE={machine}, but the file is for {plugin.elf.header.machine_name}",
            "keep the plugin and its metadata together; make the package again",
            ("AOTI_MACHINE",),
            severity,
        )
    device = metadata.get("AOTI_DEVICE_KEY", "").partition(":")[0]
    cuda = cuda_calls(plugin)
    if device == "cpu" and (cuda or plugin.gpu):
        proof = f"calls {listed(cuda)}" if cuda else f"holds {counted(len(plugin.gpu), 'piece')} of GPU code"
        yield RuleResult(
            f"its metadata says AOTI_DEVICE_KEY=cpu, but it {proof}",
            "keep the plugin and its metadata together; make the package again",
            ("AOTI_DEVICE_KEY",),
        )
    if device == "cuda" and not cuda and not plugin.gpu:
        yield RuleResult(
            "its metadata says AOTI_DEVICE_KEY=cuda, but it neither calls CUDA nor holds GPU code",
            "keep the plugin and its metadata together; make the package again",
            ("AOTI_DEVICE_KEY",),
        )
    capability = metadata.get("AOTI_COMPUTE_CAPABILITY", "").replace(".", "")
    cubins = {image.architecture for image in plugin.gpu if image.kind == "cubin" and image.architecture}
    if capability.isascii() and capability.isdigit() and cubins and int(capability[:9]) not in cubins:
        yield RuleResult(
            f"its metadata says AOTI_COMPUTE_CAPABILITY={capability}, but its GPU code is for "
            f"{listed([f'sm_{sm}' for sm in sorted(cubins)])}",
            "keep the plugin and its metadata together; make the package again",
            ("AOTI_COMPUTE_CAPABILITY",),
        )
