"""Loading a plugin in a child process, which may crash, hang or run out of memory in our stead."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from typing import Any, Literal, NamedTuple

from aoti_abi import errors
from aoti_abi.errors import AccessFailed, AotiError, InternalError, InvalidArgument
from aoti_loader.paths import as_path

Outcome = Literal["loads", "refused", "crashed", "timed out"]

#: What of the environment a child sees: where libraries are, and what OpenMP and CUDA may use.
_KEPT = (
    "PATH",
    "HOME",
    "TMPDIR",
    "LANG",
    "LC_ALL",
    "LD_LIBRARY_PATH",
    "AOTI_SHIM_PATH",
    "OMP_NUM_THREADS",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_HOME",
)
_REPLY_LIMIT = 64 << 20
_WORDS_LIMIT = 4096
#: How often it is seen whether the child has ended, seconds; its answer is noticed at once.
_POLL = 0.05


class ProbedConstant(NamedTuple):
    """One constant of a plugin's table: internal name, FQN, dtype code, and whether folding makes it."""

    name: str
    fqn: str
    dtype: int | None
    folded: bool | None


class Probe(NamedTuple):
    """What a child process found out about a plugin.

    Attributes:
        path: the plugin.
        outcome: "loads", "refused" (``error`` says why), "crashed" (``signal`` names it) or "timed out".
        host: "builtin", "torch" or "process"; None if it did not load.
        host_path: the library that provided the shims.
        features: whether each feature of `aoti_abi.features` is there.
        mends: what was mended in the child's copy.
        inputs, outputs: the plugin's own names of them.
        constants: its table of constants; None if it cannot be listed.
        call_spec: the pytree specs of inputs and outputs; None if the plugin has none.
        error: why it was refused, or why no container could be made of it; None if nothing went wrong.
        signal: what killed the child, as "SIGSEGV"; None if nothing did.
        exit_code: the child's exit status where it ended by itself without an answer (``std::exit``).
        stderr: the last words on the child's standard error.
    """

    path: str
    outcome: Outcome
    host: str | None = None
    host_path: str | None = None
    features: dict[str, bool] = {}  # noqa: RUF012 - a named tuple's default; never changed
    mends: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    constants: tuple[ProbedConstant, ...] | None = None
    call_spec: tuple[str, str] | None = None
    error: AotiError | None = None
    signal: str | None = None
    exit_code: int | None = None
    stderr: str = ""


def probe(
    path: str | os.PathLike[str],
    *,
    host: str = "auto",
    device: str = "cpu",
    timeout: float = 60.0,
    memory: int | None = None,
    **options: Any,
) -> Probe:
    """Load a plugin in a child process, make a container of it, and report what it says of itself.

    The child has a clean environment, no standard input, no core dump, a limit on processor time, and, if
    asked for, on memory. Only what the plugin answers comes back, checked as any other answer of a plugin.

    Args:
        path: the plugin.
        host: as in `aoti_loader.load`.
        device: what the container is made for; the metadata of a CUDA plugin says "cuda".
        timeout: seconds until the child is killed.
        memory: bytes of address space; None for no limit (CUDA reserves more than any machine has).
        options: further options of `aoti_loader.load`: ``mend``, ``preload``, ``check_isa``.

    Raises:
        InvalidArgument: ``timeout`` is not positive, or an option is not one of `aoti_loader.load`'s.
        AccessFailed: the system starts no child process.
    """
    if not isinstance(timeout, (int, float)) or not timeout > 0:
        raise InvalidArgument(f"timeout is {timeout!r}; it is a number of seconds above 0")
    unknown = sorted(set(options) - {"mend", "preload", "check_isa"})
    if unknown:
        raise InvalidArgument(f"unknown option {unknown[0]!r}", hint="options: mend, preload, check_isa")
    name = as_path(path)
    try:
        request = json.dumps(
            {"path": name, "host": host, "device": device, "memory": memory, "options": options}
        )
    except (TypeError, ValueError) as error:
        raise InvalidArgument("an option can't be handed to a child process", cause=str(error)) from None
    environment = {key: os.environ[key] for key in _KEPT if key in os.environ}
    environment["PYTHONPATH"] = os.pathsep.join(entry for entry in sys.path if entry)
    with tempfile.TemporaryFile() as words:
        reply_end, child_end = os.pipe()
        try:
            # -P would be right, but needs Python 3.11; the child starts in the root folder instead.
            child = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                [sys.executable, "-m", "aoti_loader.probe_child", str(child_end), str(timeout), request],
                stdin=subprocess.DEVNULL,
                stdout=words,
                stderr=words,
                pass_fds=(child_end,),
                env=environment,
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            os.close(reply_end)
            raise AccessFailed("no child process could be started", path=name, cause=str(error)) from error
        finally:
            os.close(child_end)
        reply, timed_out = _wait(child, reply_end, timeout)
        text = _last_words(words)
    return _judge(name, child.returncode, reply, text, timed_out=timed_out)


def _wait(child: subprocess.Popen[bytes], reply_end: int, timeout: float) -> tuple[bytes, bool]:
    """Collect the child's answer until it ends, or kill it, with all that it started."""
    import select
    import time

    deadline = time.monotonic() + timeout
    parts: list[bytes] = []
    length = 0
    ended = timed_out = False
    try:
        with os.fdopen(reply_end, "rb", buffering=0) as stream:
            while length <= _REPLY_LIMIT:
                # A process that the plugin started may hold the pipe open when the child has long ended.
                ended = ended or _has_ended(child)
                left = deadline - time.monotonic()
                timed_out = left <= 0 and not ended
                if timed_out:
                    break
                if select.select([stream], [], [], 0 if ended else min(left, _POLL))[0]:
                    data = stream.read(1 << 16)
                    if not data:
                        break
                    parts.append(data)
                    length += len(data)
                elif ended:
                    break
        while not timed_out and not _has_ended(child):
            timed_out = time.monotonic() > deadline
            time.sleep(_POLL / 10)
    finally:
        # The child, or what it left behind; also after an interrupt, which does not reach it by itself. Until
        # it is waited for, no other group can have its number.
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    return b"".join(parts), timed_out


def _has_ended(child: subprocess.Popen[bytes]) -> bool:
    """Whether a child has ended; it stays to be waited for."""
    return os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _last_words(stream: Any) -> str:
    size = stream.seek(0, os.SEEK_END)
    stream.seek(max(0, size - _WORDS_LIMIT))
    text: bytes = stream.read()
    return text.decode("utf-8", "backslashreplace")


def _judge(path: str, status: int, reply: bytes, words: str, *, timed_out: bool) -> Probe:
    if timed_out:
        return Probe(path, "timed out", stderr=words)
    if status < 0:
        try:
            name = signal.Signals(-status).name
        except ValueError:
            name = f"signal {-status}"
        if name == "SIGXCPU":
            return Probe(path, "timed out", signal=name, stderr=words)
        return Probe(path, "crashed", signal=name, stderr=words)
    try:
        answer = json.loads(reply)
    except ValueError:
        return Probe(path, "crashed", exit_code=status, stderr=words)
    error = answer.pop("error", None)
    constants = answer.pop("constants", None)
    spec = answer.pop("call_spec", None)
    for key in ("mends", "inputs", "outputs"):
        if key in answer:
            answer[key] = tuple(answer[key])
    return Probe(
        path,
        stderr=words,
        error=_rebuild_error(error) if error else None,
        constants=tuple(ProbedConstant(*row) for row in constants) if constants is not None else None,
        call_spec=(spec[0], spec[1]) if spec else None,
        **answer,
    )


def _rebuild_error(fields: dict[str, str | None]) -> AotiError:
    kind = getattr(errors, fields["kind"] or "", InternalError)
    error: AotiError = kind(
        fields["message"] or "", path=fields["path"], cause=fields["cause"], hint=fields["hint"]
    )
    return error
