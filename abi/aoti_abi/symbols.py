"""Names in the symbol tables of plugins and hosts that more than one layer asks about."""

from __future__ import annotations

#: What the names of a container's functions begin with: ``AOTInductorModelContainerRun``.
CONTAINER = "AOTInductorModelContainer"

#: The plugin's own words for the last error of a thread (PyTorch 2.13 and later).
LAST_ERROR = "AOTInductorGetLastError"

#: What the names of the host API begin with: the stable C functions of LibTorch
#: (torch/csrc/inductor/aoti_torch/c, torch/csrc/stable/c).
SHIM_PREFIXES: tuple[str, ...] = ("aoti_torch_", "aoti_record_function", "aoti_check_inf", "torch_")

#: The host's function that runs operators which have no C function of their own.
PROXY_EXECUTOR = "aoti_torch_proxy_executor_call_function"
