"""The contract between a host and an AOTInductor plugin, as data and pure functions.

Nothing here opens a file, loads a library or imports a third-party package; import the module you need:

* `container_api`: the ``AOTInductor*`` functions that a plugin exports, as a table.
* `features`: what a host can do with a plugin, as sets of those functions.
* `shim_catalogue`: the ``aoti_torch_*`` functions that a host exports, by PyTorch version.
* `codes`: the integers that stand for dtypes, devices, layouts and constant types.
* `prototypes`, `structs`, `entries`: ctypes views of the C API and the decoder of its replies.
* `errors`: the one exception tree.
"""
