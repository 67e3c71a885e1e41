"""Rules of the fourth hundred: what kind of file it is, for which machine, and what its metadata say."""

from __future__ import annotations

from aoti_abi.records import TYPE_CHECKING
from aoti_inspect.facts.predicates import cuda_calls, not_a_library
from aoti_inspect.rules.registry import Report, rule
from aoti_inspect.wording import counted, listed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aoti_inspect.findings import Severity
    from aoti_inspect.rules.registry import Context


@rule("AOTI420", "wrong-machine", "error")
def wrong_machine(context: Context) -> Iterator[Report]:
    """The file is for another machine than the target.

    ## Why it matters
    No library of another architecture, word size or byte order can be loaded. Everything else about the
    plugin is then beside the point, its instruction sets included.

    ## How it is checked
    `e_machine` of the ELF header is compared with the target's machine; the metadata beside the file is not
    believed here.

    ## How to fix it
    Compile on the target's architecture; AOTInductor does not cross-compile for Linux.

    ## Reports it prevents
    "wrong ELF class", "cannot open shared object file" and crashes that were searched for in the model.
    """
    header, wanted = context.plugin.elf.header, context.target.machine
    if wanted is not None and header.machine_name != wanted:
        yield Report(
            f"is for {header.machine_name} ({header.bits}-bit, {header.byte_order}-endian), and the "
            f"target is {wanted}",
            f"compile it on {wanted}",
            (header.machine_name,),
        )


@rule("AOTI432", "not-loadable", "error")
def not_loadable(context: Context) -> Iterator[Report]:
    """The file is ELF, but nothing that `dlopen` takes.

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
    elf = context.plugin.elf
    what = not_a_library(elf)
    if what:
        damaged = elf.header.type == "DYN" and not elf.is_dynamic
        yield Report(
            what,
            "link it with -shared"
            + ("; if it is the right file, it was truncated or stripped too far" if damaged else ""),
        )


@rule("AOTI433", "metadata-disagrees", "warning")
def metadata_disagrees(context: Context) -> Iterator[Report]:
    """The metadata beside the plugin says something else than the plugin itself.

    ## Why it matters
    PyTorch's loaders choose the device by the metadata, and only warn about the machine. Metadata of another
    file lead to a wrong runner, or to a check that checks nothing. An error where the metadata are those of
    another machine: then what they say of instruction sets is about another processor, too.

    ## How it is checked
    `AOTI_MACHINE` is compared with the ELF header, which is the authority (a warning with
    `--target machine=any`); `AOTI_DEVICE_KEY` with the CUDA functions that are called;
    `AOTI_COMPUTE_CAPABILITY` with the GPU code in the file.

    ## How to fix it
    Keep a plugin and its `*_metadata.json` together; make the package again.

    ## Reports it prevents
    "Unsupported device key", and GPU models that are run on the CPU's runner.
    """
    plugin = context.plugin
    metadata = plugin.metadata or {}
    machine = metadata.get("AOTI_MACHINE")
    severity: Severity = "warning" if context.target.machine is None else "error"
    if machine and machine != plugin.elf.header.machine_name:
        yield Report(
            f"its metadata says AOTI_MACHINE={machine}, but the file is for {plugin.elf.header.machine_name}",
            "keep the plugin and its metadata together; make the package again",
            ("AOTI_MACHINE",),
            severity,
        )
    device = metadata.get("AOTI_DEVICE_KEY", "").partition(":")[0]
    cuda = cuda_calls(plugin)
    if device == "cpu" and (cuda or plugin.gpu):
        proof = f"calls {listed(cuda)}" if cuda else f"holds {counted(len(plugin.gpu), 'piece')} of GPU code"
        yield Report(
            f"its metadata says AOTI_DEVICE_KEY=cpu, but it {proof}",
            "keep the plugin and its metadata together; make the package again",
            ("AOTI_DEVICE_KEY",),
        )
    if device == "cuda" and not cuda and not plugin.gpu:
        yield Report(
            "its metadata says AOTI_DEVICE_KEY=cuda, but it neither calls CUDA nor holds GPU code",
            "keep the plugin and its metadata together; make the package again",
            ("AOTI_DEVICE_KEY",),
        )
    capability = metadata.get("AOTI_COMPUTE_CAPABILITY", "").replace(".", "")
    cubins = {image.architecture for image in plugin.gpu if image.kind == "cubin" and image.architecture}
    if capability.isascii() and capability.isdigit() and cubins and int(capability[:9]) not in cubins:
        yield Report(
            f"its metadata says AOTI_COMPUTE_CAPABILITY={capability}, but its GPU code is for "
            f"{listed([f'sm_{sm}' for sm in sorted(cubins)])}",
            "keep the plugin and its metadata together; make the package again",
            ("AOTI_COMPUTE_CAPABILITY",),
        )
