"""The container API: the ``AOTInductor*`` C functions that a plugin exports.

PyTorch pastes ``torch/csrc/inductor/aoti_runtime/interface.cpp`` into every plugin, so the set of functions
that a plugin exports tells which PyTorch compiled it (`compiled_by`). The table was read from the headers
and the generator of every version in `aoti_abi.versions.KNOWN_TORCH`; no function changed its signature or went
away in that range. ``tools/scan_torch.py`` compares it with each new version.
"""

from __future__ import annotations

from aoti_abi.records import NamedTuple
from aoti_abi.versions import KNOWN_TORCH, newest, parse_version

#: Every container function starts so; nothing else in a plugin does.
PREFIX = "AOTInductor"


class ContainerFunction(NamedTuple):
    """One function of the container API.

    Attributes:
        name: the exported C name.
        since: the first PyTorch whose plugins define it, as ``"2.13"``.
        parameters: the C parameter list, as upstream's header has it; each function returns
            ``AOTIRuntimeError``, an ``int32_t`` that is 0 on success.
        deprecated: the PyTorch since which the header calls it deprecated, or None.
        cpp_abi: True if a parameter is a C++ object behind an opaque handle (``std::unordered_map`` or
            ``std::tuple``): calling it is safe only if both sides share one C++ standard library.
        generated: True if only some plugins have it (the minimal ArrayRef interface), so that its absence
            says nothing about the compiler's version.
    """

    name: str
    since: str
    parameters: str
    deprecated: str | None = None
    cpp_abi: bool = False
    generated: bool = False

    @property
    def signature(self) -> str:
        """Return the C declaration without its final semicolon."""
        return f"AOTIRuntimeError {self.name}({self.parameters})"


_f = ContainerFunction

# fmt: off
_TABLE: tuple[ContainerFunction, ...] = (
    _f("AOTInductorGetLastError", "2.13", "const char** error_msg"),
    _f("AOTInductorModelContainerCreate", "2.2", "AOTInductorModelContainerHandle* container_handle, size_t num_models, bool is_cpu, const char* cubin_dir", deprecated="2.3"),
    _f("AOTInductorModelContainerCreateWithDevice", "2.3", "AOTInductorModelContainerHandle* container_handle, size_t num_models, const char* device_str, const char* cubin_dir"),
    _f("AOTInductorModelContainerCreateWithExternalConstants", "2.14", "AOTInductorModelContainerHandle* container_handle, size_t num_models, const char* device_str, const char* cubin_dir, const AOTInductorConstantMapEntry* constant_entries, size_t num_constant_entries"),
    _f("AOTInductorModelContainerDelete", "2.2", "AOTInductorModelContainerHandle container_handle"),
    _f("AOTInductorModelContainerDidCallLoadConstants", "2.14", "AOTInductorModelContainerHandle container_handle, bool* did_call_load_constants"),
    _f("AOTInductorModelContainerExtractConstantsMap", "2.8", "AOTInductorModelContainerHandle container_handle, AOTInductorConstantMapHandle constant_map_handle, bool use_inactive", deprecated="2.13", cpp_abi=True),
    _f("AOTInductorModelContainerExtractConstantsMapEntries", "2.13", "AOTInductorModelContainerHandle container_handle, const AOTInductorConstantMapEntry** entries, size_t* num_entries, bool use_inactive"),
    _f("AOTInductorModelContainerFreeInactiveConstantBuffer", "2.8", "AOTInductorModelContainerHandle container_handle"),
    _f("AOTInductorModelContainerGetCallSpec", "2.2", "AOTInductorModelContainerHandle container_handle, const char** in_spec, const char** out_spec"),
    _f("AOTInductorModelContainerGetConstantDataSize", "2.8", "AOTInductorModelContainerHandle container_handle, size_t idx, size_t* data_size"),
    _f("AOTInductorModelContainerGetConstantDtype", "2.3", "AOTInductorModelContainerHandle container_handle, size_t idx, int32_t* dtype"),
    _f("AOTInductorModelContainerGetConstantFromFolded", "2.3", "AOTInductorModelContainerHandle container_handle, size_t idx, bool* from_folded"),
    _f("AOTInductorModelContainerGetConstantName", "2.3", "AOTInductorModelContainerHandle container_handle, size_t idx, const char** name"),
    _f("AOTInductorModelContainerGetConstantOriginalFQN", "2.3", "AOTInductorModelContainerHandle container_handle, size_t idx, const char** original_fqn"),
    _f("AOTInductorModelContainerGetConstantType", "2.6", "AOTInductorModelContainerHandle container_handle, size_t idx, int32_t* type"),
    _f("AOTInductorModelContainerGetConstantsBlobSize", "2.10", "AOTInductorModelContainerHandle container_handle, uint64_t* ret_size"),
    _f("AOTInductorModelContainerGetInputName", "2.2", "AOTInductorModelContainerHandle container_handle, size_t input_idx, const char** ret_input_names"),
    _f("AOTInductorModelContainerGetNumConstants", "2.3", "AOTInductorModelContainerHandle container_handle, size_t* num_constants"),
    _f("AOTInductorModelContainerGetNumInputs", "2.2", "AOTInductorModelContainerHandle container_handle, size_t* ret_num_inputs"),
    _f("AOTInductorModelContainerGetNumOutputs", "2.2", "AOTInductorModelContainerHandle container_handle, size_t* ret_num_outputs"),
    _f("AOTInductorModelContainerGetOutputName", "2.2", "AOTInductorModelContainerHandle container_handle, size_t output_idx, const char** ret_output_names"),
    _f("AOTInductorModelContainerGetStreamAffinityModelIndexForTesting", "2.15", "AOTInductorModelContainerHandle container_handle, AOTInductorStreamHandle stream_handle, int64_t* model_index"),
    _f("AOTInductorModelContainerRun", "2.2", "AOTInductorModelContainerHandle container_handle, AtenTensorHandle* input_handles, size_t num_inputs, AtenTensorHandle* output_handles, size_t num_outputs, AOTInductorStreamHandle stream_handle, AOTIProxyExecutorHandle proxy_executor_handle"),
    _f("AOTInductorModelContainerRunConstantFolding", "2.3", "AOTInductorModelContainerHandle container_handle, bool use_inactive, AOTInductorStreamHandle stream_handle, AOTIProxyExecutorHandle proxy_executor_handle"),
    _f("AOTInductorModelContainerRunSingleThreaded", "2.7", "AOTInductorModelContainerHandle container_handle, AtenTensorHandle* input_handles, size_t num_inputs, AtenTensorHandle* output_handles, size_t num_outputs, AOTInductorStreamHandle stream_handle, AOTIProxyExecutorHandle proxy_executor_handle"),
    _f("AOTInductorModelContainerSetUseStreamAffinity", "2.15", "AOTInductorModelContainerHandle container_handle, bool use_stream_affinity"),
    _f("AOTInductorModelContainerSwapConstantBuffer", "2.3", "AOTInductorModelContainerHandle container_handle"),
    _f("AOTInductorModelContainerUpdateConstantBuffer", "2.3", "AOTInductorModelContainerHandle container_handle, AOTInductorConstantMapHandle constant_map_handle, bool use_inactive, bool validate_full_update", deprecated="2.13", cpp_abi=True),
    _f("AOTInductorModelContainerUpdateConstantBufferFromCpu", "2.13", "AOTInductorModelContainerHandle container_handle, AOTInductorConstantMapHandle constant_map_handle, bool use_inactive, bool validate_full_update", deprecated="2.13", cpp_abi=True),
    _f("AOTInductorModelContainerUpdateConstantBufferFromCpuPairs", "2.13", "AOTInductorModelContainerHandle container_handle, const AOTInductorConstantMapEntry* pairs, size_t num_pairs, bool use_inactive, bool validate_full_update"),
    _f("AOTInductorModelContainerUpdateConstantBufferPairs", "2.13", "AOTInductorModelContainerHandle container_handle, const AOTInductorConstantMapEntry* pairs, size_t num_pairs, bool use_inactive, bool validate_full_update"),
    _f("AOTInductorModelContainerUpdateInactiveConstantBuffer", "2.3", "AOTInductorModelContainerHandle container_handle, AOTInductorConstantMapHandle constant_map_handle", deprecated="2.13", cpp_abi=True),
    _f("AOTInductorModelContainerUpdateInactiveConstantBufferPairs", "2.13", "AOTInductorModelContainerHandle container_handle, const AOTInductorConstantMapEntry* pairs, size_t num_pairs"),
    _f("AOTInductorModelContainerUpdateUserManagedConstantBuffer", "2.8", "AOTInductorModelContainerHandle container_handle, AOTInductorConstantMapHandle constant_map_handle, bool use_inactive, bool validate_full_update", cpp_abi=True),
    _f("AOTInductorModelContainerUpdateUserManagedConstantBufferPairs", "2.10", "AOTInductorModelContainerHandle container_handle, const AOTInductorConstantMapEntry* pairs, size_t num_pairs, bool use_inactive, bool validate_full_update"),
    _f("AOTInductorModelCreate", "2.2", "AOTInductorModelHandle* model_handle, AOTInductorConstantMapHandle constant_map_handle", deprecated="2.13", cpp_abi=True),
    _f("AOTInductorModelCreateV2", "2.13", "AOTInductorModelHandle* model_handle, const AOTInductorConstantMapEntry* pairs, size_t num_pairs"),
    _f("AOTInductorModelDelete", "2.2", "AOTInductorModelHandle model_handle"),
    _f("AOTInductorModelGetNumOutputs", "2.2", "AOTInductorModelHandle model_handle, size_t* ret_num_outputs"),
    _f("AOTInductorModelRun", "2.2", "AOTInductorModelHandle model_handle, AtenTensorHandle* input_handles, AtenTensorHandle* output_handles"),
    _f("AOTInductorModelRunMinimalArrayrefInterface", "2.3", "AOTInductorModelHandle model_handle, const AOTInductorModelInputs& inputs, AOTInductorModelOutputs& outputs", cpp_abi=True, generated=True),
    _f("AOTInductorModelRunMinimalArrayrefInterfaceV2", "2.13", "AOTInductorModelHandle model_handle, int32_t num_inputs, const AOTInductorArrayRefTensor* inputs, int32_t num_outputs, AOTInductorArrayRefTensor* outputs", generated=True),
    _f("AOTInductorModelUpdateConstantsFromBlob", "2.10", "AOTInductorModelContainerHandle container_handle, const uint8_t* weight_blob_ptr"),
    _f("AOTInductorModelUpdateConstantsMap", "2.2", "AOTInductorModelHandle model_handle, AOTInductorConstantMapHandle constant_map_handle", cpp_abi=True),
    _f("AOTInductorModelUpdateConstantsMapV2", "2.13", "AOTInductorModelHandle model_handle, const AOTInductorConstantMapEntry* pairs, int32_t num_pairs"),
    _f("AOTInductorSetPinnedAsyncConstantsCopyCpuThreads", "2.15", "size_t threads"),
    _f("AOTInductorSetPinnedAsyncConstantsCopyStageBufferBytes", "2.14", "size_t bytes"),
    _f("AOTInductorSetUsePinnedAsyncConstantsCopy", "2.14", "bool enabled"),
)
# fmt: on

#: Every container function by its exported name.
CONTAINER_API: dict[str, ContainerFunction] = {function.name: function for function in _TABLE}

#: Functions without which nothing can be run (behaviour L1).
REQUIRED: tuple[str, ...] = (
    "AOTInductorModelContainerCreateWithDevice",
    "AOTInductorModelContainerDelete",
    "AOTInductorModelContainerGetNumInputs",
    "AOTInductorModelContainerGetNumOutputs",
    "AOTInductorModelContainerRun",
)

#: Names that only the incompatible interface of PyTorch 2.1 had.
TORCH_2_1_ONLY: frozenset[str] = frozenset(
    f"AOTInductorModelContainerGet{what}"
    for what in ("InputDtype", "OutputDtype", "MaxInputShape", "MaxOutputShape")
)


class Compiler(NamedTuple):
    """Which PyTorch compiled a plugin, as far as its exports tell.

    Attributes:
        oldest: the first version with exactly this set, as ``"2.10"``.
        newest: the last version with this set; the newest one known if no later set differs.
        missing: functions that this version's plugins have and this one lacks (a trimmed or patched plugin).
        unknown: exported ``AOTInductor*`` names that no known version has (a newer PyTorch, or a fork).
    """

    oldest: str
    newest: str
    missing: tuple[str, ...]
    unknown: tuple[str, ...]


def compiled_by(exports: frozenset[str] | set[str]) -> Compiler | None:
    """Return which PyTorch emits this set of exported names, or None if it holds no container function.

    Names that do not start with ``AOTInductor`` are ignored. The answer is a range, since several minor
    versions can emit the same set (2.3 to 2.5, for one).
    """
    known = {name for name in exports if name in CONTAINER_API and not CONTAINER_API[name].generated}
    if not known:
        return None
    oldest = newest([CONTAINER_API[name].since for name in known])
    emitted = [function for function in _TABLE if not function.generated]
    later = [f.since for f in emitted if parse_version(f.since) > parse_version(oldest)]
    expected = {f.name for f in emitted if f.since not in later}
    last = KNOWN_TORCH[-1]
    if later:
        last = KNOWN_TORCH[KNOWN_TORCH.index(min(later, key=parse_version)) - 1]
    unknown = sorted(
        name
        for name in exports
        if name.startswith(PREFIX) and name not in CONTAINER_API and name not in TORCH_2_1_ONLY
    )
    return Compiler(oldest, last, tuple(sorted(expected - known)), tuple(unknown))
