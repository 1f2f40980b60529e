# SPDX-License-Identifier: MIT
"""Finds and loads Berth's libraries, turns their errors into exceptions, and runs long calls."""

from __future__ import annotations

import atexit
import ctypes.util
import logging
import os
import threading
import weakref
from pathlib import Path
from typing import Any, Callable, TypeVar

import cffi

from . import _cdef

T = TypeVar("T")

_NAME = "libberth.so"


class BerthError(Exception):
    """A call of Berth failed. The text is Berth's message."""


class OutOfMemoryError(BerthError, MemoryError):
    """Memory could not be allocated."""


class StoppedError(BerthError):
    """A callback ended the call."""


def _candidates() -> list[str]:
    """The files to try, in order."""
    named = os.environ.get("BERTH_LIBRARY_DIR")
    if named:
        return [str(Path(named) / _NAME)]
    own = Path(__file__).parent / "lib" / _NAME
    found = [str(own)] if own.exists() else []
    return [*found, _NAME]


def _load(ffi: Any) -> Any:
    tried = []
    for name in _candidates():
        try:
            return ffi.dlopen(name, ffi.RTLD_NOW | ffi.RTLD_LOCAL)
        except OSError as error:
            tried.append(str(error))
    raise ImportError(
        "Berth's library libberth.so was not found. Install Berth, install the wheel that contains it, or set BERTH_LIBRARY_DIR to "
        f"its folder, such as build/lib of a build. Tried: {'; '.join(tried)}"
    )


ffi: Any = cffi.FFI()
ffi.cdef(_cdef.ENUMS + _cdef.STRUCTS + _cdef.functions() + _cdef.LIBC)
lib: Any = _load(ffi)
_libc: Any = ffi.dlopen(ctypes.util.find_library("c"))

# ---- log: Berth's lines go to the logger "berth" ----

_log = logging.getLogger("berth")
_LEVELS = {
    lib.GGML_LOG_LEVEL_DEBUG: logging.DEBUG,
    lib.GGML_LOG_LEVEL_INFO: logging.INFO,
    lib.GGML_LOG_LEVEL_WARN: logging.WARNING,
    lib.GGML_LOG_LEVEL_ERROR: logging.DEBUG,  # the text of an error is in the exception
}


@ffi.callback("void(enum ggml_log_level, const char *, void *)")  # type: ignore[misc]
def _on_log(level: int, text: Any, _user: Any) -> None:
    _log.log(_LEVELS.get(level, logging.DEBUG), "%s", ffi.string(text).decode("utf-8", "replace").rstrip("\n"))


def _log_end() -> None:
    lib.ggml_log_set(ffi.NULL, ffi.NULL)


lib.ggml_log_set(_on_log, ffi.NULL)
atexit.register(_log_end)

# ---- errors ----


def text_of(pointer: Any) -> str:
    """Returns a C text; NULL is the empty text."""
    text: str = "" if pointer == ffi.NULL else ffi.string(pointer).decode("utf-8", "replace")
    return text


def last_error() -> BerthError:
    """Returns the last error of this thread as an exception."""
    text = text_of(lib.berth_last_error()) or "the call failed"
    return OutOfMemoryError(text) if "out of memory" in text else BerthError(text)


def check(status: int) -> None:
    """Raises an exception if a status is not success."""
    if status == lib.GGML_STATUS_SUCCESS:
        return
    if status == lib.GGML_STATUS_ABORTED:
        raise StoppedError("stopped by a callback")
    error = last_error()
    raise OutOfMemoryError(str(error)) if status == lib.GGML_STATUS_ALLOC_FAILED else error


def not_null(pointer: Any) -> Any:
    """Returns the pointer, or raises the last error if it is NULL."""
    if pointer == ffi.NULL:
        raise last_error()
    return pointer


class Resource:
    """A C object that is freed after the objects that use it.

    Python collects the objects of a cycle in any order. So an owner has a finalizer that only releases its share, and the C object is
    freed when all shares are released.
    """

    def __init__(self, owner: object, pointer: Any, free: Callable[[Any], None], parent: Resource | None = None) -> None:
        self.c = pointer
        self._free = free
        self._parent = parent
        self._shares = 1
        if parent is not None:
            parent._shares += 1
        weakref.finalize(owner, self._release)

    def _release(self) -> None:
        self._shares -= 1
        if self._shares == 0:
            self._free(self.c)
            if self._parent is not None:
                self._parent._release()


# ---- texts that C writes ----


def written(write: Callable[[Any], int]) -> str:
    """Returns the text that write(FILE *) writes; write returns a status."""
    text, size = ffi.new("char **"), ffi.new("size_t *")
    file = _libc.open_memstream(text, size)
    if file == ffi.NULL:
        raise OutOfMemoryError("out of memory")
    try:
        status = write(file)
        error = None if status == lib.GGML_STATUS_SUCCESS else last_error()
    finally:
        _libc.fclose(file)
    try:
        if error is not None:
            raise error
        return bytes(ffi.buffer(text[0], size[0])).decode("utf-8", "replace")
    finally:
        _libc.free(text[0])


# ---- long calls ----


class Flag:
    """A flag in C memory that ends a call when it is set."""

    def __init__(self) -> None:
        self.pointer: Any = ffi.new("int *")

    def set(self, value: bool) -> None:
        """Sets or clears the flag."""
        self.pointer[0] = int(value)

    def is_set(self) -> bool:
        """Returns whether the flag is set."""
        return bool(self.pointer[0])


class Worker(threading.Thread):
    """Runs a function and keeps its result or its exception."""

    def __init__(self, function: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self._function = function
        self._result: Any = None
        self._error: BaseException | None = None
        self.done = threading.Event()

    def run(self) -> None:
        """Calls the function."""
        try:
            self._result = self._function()
        except BaseException as error:  # pylint: disable=broad-except
            self._error = error
        finally:
            self.done.set()

    def result(self) -> Any:
        """Returns the result of the function, or raises its exception."""
        if self._error is not None:
            raise self._error
        return self._result


def run_long(function: Callable[[], T], flag: Flag) -> T:
    """Calls a function that takes long, and reacts to signals meanwhile.

    Python runs signal handlers in the main thread only, between two instructions of Python. So the function runs in another thread
    while the main thread waits. If a handler raises an exception, such as KeyboardInterrupt, the flag is set, which ends the
    function, and the exception continues.
    """
    if threading.current_thread() is not threading.main_thread():
        return function()
    worker = Worker(function)
    worker.start()
    try:
        worker.done.wait()
    except BaseException:
        flag.set(True)
        worker.join()
        raise
    result: T = worker.result()
    return result
