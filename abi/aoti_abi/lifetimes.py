"""Objects that own something which can't be in two places."""

from __future__ import annotations


class Unique:
    """Base of what can be neither copied nor pickled: a copy would free what the original owns a second time.

    ``copy.copy``, ``copy.deepcopy`` and ``pickle`` all ask `__reduce_ex__`.
    """

    __slots__ = ()

    def __reduce_ex__(self, protocol: object) -> str:
        """Refuse.

        Raises:
            TypeError: always.
        """
        del protocol
        raise TypeError(
            f"a {type(self).__name__} can be neither copied nor pickled: it belongs to this process, once"
        )


def refuse_subinterpreter(package: str) -> None:
    """Raise in a Python subinterpreter: ctypes' callbacks and the GIL's C API know the main one only.

    Raises:
        ImportError: this is not the process's main interpreter.
    """
    from ctypes import c_void_p, pythonapi

    current, main = pythonapi["PyInterpreterState_Get"], pythonapi["PyInterpreterState_Main"]
    current.restype = main.restype = c_void_p
    if current() != main():
        raise ImportError(
            f"{package} works in the main interpreter only; use threads, or a process for each model",
            name=package,
        )
