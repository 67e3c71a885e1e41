"""The one exception tree, and the warning for a lost feature.

Every error carries the same five things, so that a program can act on it and a person can read it: a
``code`` (the names of ExecuTorch's ``runtime/core/error.h``), what happened, the ``path`` or method
concerned, the ``cause`` in the words of whoever reported it (``dlerror``, ``AOTInductorGetLastError``, a
CUDA error name), and a ``hint`` that says what to do next.
"""

from __future__ import annotations


class AotiError(Exception):
    """Base of every error that the toolkit raises on purpose.

    Attributes:
        code: ExecuTorch's name for the kind of error, the same for every instance of a class.
        message: what happened, one sentence.
        path: the file, archive member or method concerned, if there is one.
        cause: the reporter's own words, unchanged, if something else reported it.
        hint: what to do next, if that is known.
    """

    code = "Internal"

    def __init__(
        self,
        message: str,
        *,
        path: str | None = None,
        cause: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.path = path
        self.cause = cause
        self.hint = hint

    def __str__(self) -> str:
        """Return ``path: message (cause)`` and the hint on a line of its own."""
        text = f"{self.path}: {self.message}" if self.path else self.message
        if self.cause:
            text = f"{text} ({self.cause})"
        if self.hint:
            text = f"{text}\nhint: {self.hint}"
        return text

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle with all fields: workers hand errors back to their parent process."""
        return (_rebuild, (type(self), self.message, self.path, self.cause, self.hint))


def _rebuild(
    kind: type[AotiError], message: str, path: str | None, cause: str | None, hint: str | None
) -> AotiError:
    return kind(message, path=path, cause=cause, hint=hint)


class InternalError(AotiError):
    """The toolkit broke a promise of its own: please report it."""

    code = "Internal"


class InvalidProgram(AotiError):
    """The artifact, or what the plugin answered, is malformed."""

    code = "InvalidProgram"


class NotSupported(AotiError):
    """The plugin, the host or this machine lacks what was asked for."""

    code = "NotSupported"


class InvalidArgument(AotiError):
    """The caller passed something that does not fit."""

    code = "InvalidArgument"


class InvalidState(AotiError):
    """The call is valid, but not now: closed, not bound yet, in use."""

    code = "InvalidState"


class AccessFailed(AotiError):
    """The system refused: a file could not be read or written, a library could not be loaded."""

    code = "AccessFailed"


class NotFound(AotiError):
    """A file, method, key or symbol that was named is not there."""

    code = "NotFound"


class ExecutionFailed(AotiError):
    """The plugin returned an error from a call that was valid."""

    code = "Internal"


class FallbackWarning(UserWarning):
    """A feature is lost because the plugin lacks a function (behaviour L8).

    Attributes:
        feature: the feature's name in `aoti_abi.features`.
        symbols: the container functions that are missing, as the plugin would export them.
        since: the first PyTorch that emits all of them, as ``"2.13"``.
        instead: what happens now.
    """

    def __init__(self, feature: str, symbols: tuple[str, ...], since: str, instead: str) -> None:
        names = ", ".join(symbols)
        super().__init__(
            f"{feature}: the plugin does not export {names} (emitted by PyTorch {since} and later); {instead}"
        )
        self.feature = feature
        self.symbols = symbols
        self.since = since
        self.instead = instead
