# SPDX-License-Identifier: MIT
"""Language models: generate text, chat, compute embeddings, convert text to tokens.

>>> model = berth.Model("model.gguf")
>>> print(model.generate("Once upon a time", max_tokens=50))
>>> for piece in model.stream("Once upon a time"):
...     print(piece, end="", flush=True)
"""

from __future__ import annotations

import os
import queue
import threading
from dataclasses import dataclass
from typing import Any, Callable, Iterator, Mapping, Sequence, Union

import numpy as np
import numpy.typing as npt

from ._library import BerthError, Flag, Resource, StoppedError, Worker, check, ffi, last_error, lib, not_null, run_long, text_of
from .gguf import Keys

Array = npt.NDArray[Any]
Path = Union[str, "os.PathLike[str]"]
Message = Mapping[str, str]
"""A message of a conversation: {"role": "user", "content": "..."}."""

_ENDS = {
    lib.BERTH_END_MODEL: "model", lib.BERTH_END_TOKENS: "tokens", lib.BERTH_END_CONTEXT: "context", lib.BERTH_END_STOP: "stop",
    lib.BERTH_END_ABORTED: "aborted",
}  # fmt: skip


@dataclass
class Sampling:
    """How the next token is chosen. The defaults are those of `berth run`."""

    max_tokens: int = -1
    """most tokens; -1: until the model ends the text or the context is full"""
    temperature: float = 0.8
    """0: always the most likely token; higher values are more random"""
    seed: int = -1
    """of the random numbers; below 0: a new one for each call"""
    top_k: int = 40
    """keep the top_k most likely tokens; 0: all"""
    typical: float = 1.0
    """then keep the most typical tokens with this total probability; 1: all"""
    top_p: float = 0.95
    """then keep the most likely tokens with this total probability; 1: all"""
    min_p: float = 0.0
    """then keep tokens at least min_p times as likely as the most likely one"""
    repeat_penalty: float = 1.0
    """lower the logits of recent tokens by this factor; 1: off"""
    frequency_penalty: float = 0.0
    """subtract this from a logit for each occurrence among the recent tokens"""
    presence_penalty: float = 0.0
    """subtract this from a logit if the token is among the recent ones"""
    repeat_last_n: int = 64
    """number of recent tokens for the penalties"""
    mirostat_tau: float = 0.0
    """target surprise of Mirostat 2 in bits; 0: off"""
    mirostat_eta: float = 0.1
    """learning rate of Mirostat 2"""
    logit_bias: Mapping[int, float] | None = None
    """added to the logits of tokens; -inf: never chosen"""
    stop: Sequence[str] = ()
    """texts that end the generated text; they are not part of it"""
    grammar: str | None = None
    """generate only text that matches this GBNF grammar"""
    json_schema: str | None = None
    """generate only JSON that matches this schema"""


_NUMBERS = (
    "max_tokens", "temperature", "seed", "top_k", "typical", "top_p", "min_p", "repeat_penalty", "frequency_penalty",
    "presence_penalty", "repeat_last_n", "mirostat_tau", "mirostat_eta",
)  # fmt: skip


class Generated(str):
    """A generated text. It is a str with facts about the call."""

    end: str
    """why the text ended: model, tokens, context, stop or aborted"""
    n_prompt: int
    """tokens of the prompt that were processed"""
    n_generated: int
    """generated tokens"""
    prompt_us: int
    """time for the prompt, in microseconds"""
    generate_us: int
    """time for the generated tokens, in microseconds"""
    seed: int
    """of the random numbers"""
    per_second: float
    """tokens that the model processed per second after the prompt"""


class _Handle:
    """An open model, which sessions keep open, and the lock that allows one call at a time."""

    def __init__(self, c: Any) -> None:
        self.c = c
        self.resource = Resource(self, c, lib.berth_model_free)
        self.flag = Flag()
        self._busy = threading.Lock()
        lib.berth_model_set_stop(self.c, lib.berth_flag_is_set, self.flag.pointer)

    def acquire(self) -> None:
        """Begins a call."""
        if not self._busy.acquire(blocking=False):
            raise BerthError("the model is in use by another call; wait until it ends, or open the model twice")
        self.flag.set(False)

    def release(self) -> None:
        """Ends a call."""
        self._busy.release()

    def run(self, function: Callable[[], Any]) -> Any:
        """Runs one call."""
        self.acquire()
        try:
            return run_long(function, self.flag)
        finally:
            self.release()


class _Params:
    """A struct berth_generate_params, with the memory that it refers to."""

    def __init__(self, sampling: Sampling, on_text: Callable[[str], Any] | None) -> None:
        self.pieces: list[str] = []
        self.errors: list[BaseException] = []
        self._on_text = on_text
        self._keep: list[Any] = []
        self.c = ffi.new("struct berth_generate_params *")
        lib.berth_generate_params_init(self.c)
        for name in _NUMBERS:
            setattr(self.c, name, getattr(sampling, name))
        self._set_lists(sampling)
        for name in ("grammar", "json_schema"):
            text = getattr(sampling, name)
            if text is not None:
                setattr(self.c, name, self._held(ffi.new("char[]", text.encode())))
        self.c.on_text = self._held(ffi.callback("bool(const char *, size_t, void *)", self._put))

    def _held(self, c: Any) -> Any:
        self._keep.append(c)
        return c

    def _set_lists(self, sampling: Sampling) -> None:
        stops = [self._held(ffi.new("char[]", stop.encode())) for stop in sampling.stop]
        self.c.stops, self.c.n_stops = self._held(ffi.new("char *[]", stops or [ffi.NULL])), len(stops)
        biases = sampling.logit_bias or {}
        self.c.biases = self._held(ffi.new("struct berth_token_bias[]", [tuple(row) for row in biases.items()] or 1))
        self.c.n_biases = len(biases)

    def _put(self, text: Any, size: int, _user: Any) -> bool:
        try:
            piece = ffi.unpack(text, size).decode("utf-8", "replace")
            self.pieces.append(piece)
            return self._on_text is None or self._on_text(piece) is not False
        except BaseException as error:  # pylint: disable=broad-except
            self.errors.append(error)
            return False

    def result(self, status: int, facts: Any) -> Generated:
        """Returns the text, or raises the error of the call."""
        if self.errors:
            raise self.errors[0]
        if status != lib.GGML_STATUS_ABORTED:
            check(status)
        text = Generated("".join(self.pieces))
        text.end = _ENDS[facts.end]
        text.n_prompt, text.n_generated, text.seed = facts.n_prompt, facts.n_generated, facts.seed
        text.prompt_us, text.generate_us = facts.prompt_us, facts.generate_us
        text.per_second = 1e6 * facts.n_decoded / facts.generate_us if facts.generate_us > 0 else 0.0
        return text


def _sampling_of(sampling: Sampling | None, options: Mapping[str, Any]) -> Sampling:
    values = dict(vars(sampling)) if sampling is not None else {}
    values.update(options)
    return Sampling(**values)


class Session:
    """A cache of processed tokens, and the memory to compute the next ones. Model creates one when it needs it.

    n_ctx: positions; 0: the context of training, limited to 512 ... 4096. n_batch: largest number of tokens that are processed
    together. cache_type: type of keys and values, such as "q8_0". embedding: compute embeddings instead of logits.
    """

    def __init__(
        self, model: Model, *, n_ctx: int = 0, n_batch: int = 0, cache_type: str | None = None, embedding: bool = False
    ) -> None:
        params = ffi.new("struct berth_session_params *")
        params.n_ctx, params.n_batch, params.is_embedding = n_ctx, n_batch, embedding
        kind = ffi.new("char[]", cache_type.encode()) if cache_type is not None else ffi.NULL
        params.cache_type = kind
        self._model = model._handle
        self._n_values = model.n_embd if embedding else model.n_vocab
        self.c = self._model.run(lambda: not_null(lib.berth_session_new(self._model.c, params)))
        self.resource = Resource(self, self.c, lib.berth_session_free, self._model.resource)

    @property
    def n_ctx(self) -> int:
        """The number of positions."""
        return int(lib.berth_session_n_ctx(self.c))

    @property
    def n_past(self) -> int:
        """The number of positions in the cache."""
        return int(lib.berth_session_n_past(self.c))

    def memory(self) -> list[dict[str, Any]]:
        """Returns the memory on each device in bytes: device, weights, cache, compute, bound, work."""
        rows: list[dict[str, Any]] = []
        row = ffi.new("struct berth_session_memory *")
        while lib.berth_session_memory(self.c, len(rows), row):
            facts: dict[str, Any] = {"device": text_of(row.device)}
            facts.update((name, int(getattr(row, name))) for name in ("weights", "cache", "compute", "bound", "work"))
            rows.append(facts)
        return rows

    def reset(self) -> None:
        """Removes all positions from the cache."""
        lib.berth_session_reset(self.c)

    def decode(self, tokens: Sequence[int] | Array) -> Array:
        """Processes tokens at the next positions. Returns the logits of the last one."""
        ids: Array = np.ascontiguousarray(tokens, np.int32)
        self._model.run(lambda: check(lib.berth_session_decode(self.c, ffi.cast("int32_t *", ids.ctypes.data), len(ids))))
        return self.logits()

    def logits(self) -> Array:
        """Returns a copy of the logits of the last processed token."""
        c = lib.berth_session_logits(self.c)
        if c == ffi.NULL:
            raise BerthError("the session has processed no token")
        return np.frombuffer(ffi.buffer(c, self._n_values * 4), np.float32).copy()

    def generate(
        self, prompt: str, sampling: Sampling | None = None, *, on_text: Callable[[str], Any] | None = None, **options: Any
    ) -> Generated:
        """Continues a prompt. The cache is reset first. See Model.generate."""
        params = _Params(_sampling_of(sampling, options), on_text)
        facts = ffi.new("struct berth_generate_result *")
        text = prompt.encode()
        status = self._model.run(lambda: lib_status(lib.berth_session_generate(self.c, text, len(text), params.c, facts)))
        return params.result(status, facts)

    def stream(self, prompt: str, sampling: Sampling | None = None, **options: Any) -> Iterator[str]:
        """Like generate, but yields the text in pieces while it is generated. See Model.stream."""
        pieces: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        params = _Params(_sampling_of(sampling, options), pieces.put)
        facts = ffi.new("struct berth_generate_result *")
        text = prompt.encode()

        def work() -> int:
            try:
                return lib_status(lib.berth_session_generate(self.c, text, len(text), params.c, facts))
            finally:
                pieces.put(None)

        self._model.acquire()
        worker = Worker(work)
        worker.start()
        try:
            yield from iter(pieces.get, None)
            worker.join()
            params.result(worker.result(), facts)
        finally:
            self._model.flag.set(True)
            worker.join()
            self._model.release()

    def embed(self, text: str, *, pooling: str = "mean", normalize: bool = True) -> Array:
        """Returns the embedding of a text. Requires a session with embedding=True. See Model.embed."""
        if pooling not in ("mean", "last"):
            raise ValueError(f"pooling is '{pooling}'; it must be mean or last")
        out: Array = np.empty(self._n_values, np.float32)
        data, target = text.encode(), ffi.cast("float *", out.ctypes.data)
        self._model.run(
            lambda: check(lib.berth_session_embed(self.c, data, len(data), pooling == "last", not normalize, target))
        )
        return out


def lib_status(status: int) -> int:
    """Returns a status that is not a failure, and raises the error of this thread otherwise."""
    if status != lib.GGML_STATUS_ABORTED:
        check(status)
    return status


class Chat:
    """A conversation, which stays in the cache of its session. Shown answers are generated with ask().

    >>> chat = model.chat(system="You are a pirate.")
    >>> chat.ask("Who are you?")
    """

    def __init__(self, session: Session, *, system: str | None = None, template: str | None = None) -> None:
        self.session = session
        name = ffi.new("char[]", template.encode()) if template is not None else ffi.NULL
        self.c = not_null(lib.berth_chat_new(session.c, name))
        self.resource = Resource(self, self.c, lib.berth_chat_free, session.resource)
        if system is not None:
            self.add("system", system)

    def add(self, role: str, text: str) -> None:
        """Appends a message with the role system, user or assistant."""
        data = text.encode()
        check(lib.berth_chat_add(self.c, role.encode(), data, len(data)))

    def answer(
        self, sampling: Sampling | None = None, *, on_text: Callable[[str], Any] | None = None, **options: Any
    ) -> Generated:
        """Generates the answer to the last message, which must be the user's, and appends it. See Model.generate."""
        params = _Params(_sampling_of(sampling, options), on_text)
        facts = ffi.new("struct berth_generate_result *")
        model = self.session._model  # pylint: disable=protected-access
        status = model.run(lambda: lib_status(lib.berth_chat_answer(self.c, params.c, facts)))
        return params.result(status, facts)

    def ask(
        self, text: str, sampling: Sampling | None = None, *, on_text: Callable[[str], Any] | None = None, **options: Any
    ) -> Generated:
        """Appends a message of the user and returns the answer."""
        self.add("user", text)
        return self.answer(sampling, on_text=on_text, **options)

    @property
    def messages(self) -> list[dict[str, str]]:
        """The messages: {"role": ..., "content": ...}."""
        role, text = ffi.new("const char **"), ffi.new("const char **")
        rows: list[dict[str, str]] = []
        while lib.berth_chat_message(self.c, len(rows), role, text):
            rows.append({"role": text_of(role[0]), "content": text_of(text[0])})
        return rows


class Model:
    """An open language model: weights on devices, and a tokenizer.

    path: a GGUF file; None: the small model that comes with Berth. device: name of a device; None: all GPUs and the CPU. threads: CPU
    threads; 0: one per core. n_ctx, n_batch, cache_type: as in Session. loras: adapters, each "FILE" or "FILE:SCALE". mmap: map the
    file; False reads it. progress: called with (done, all) bytes while the weights are loaded.

    One call at a time uses a model. All memory is allocated before the first token.
    """

    def __init__(
        self,
        path: Path | None = None,
        *,
        device: str | None = None,
        threads: int = 0,
        n_ctx: int = 0,
        n_batch: int = 0,
        cache_type: str | None = None,
        loras: Sequence[str] = (),
        mmap: bool = True,
        progress: Callable[[int, int], Any] | None = None,
    ) -> None:
        flag, errors = Flag(), list[BaseException]()

        def report(done: int, total: int, _user: Any) -> bool:
            try:
                return (progress is None or progress(done, total) is not False) and not flag.is_set()
            except BaseException as error:  # pylint: disable=broad-except
                errors.append(error)
                return False

        names = [ffi.new("char[]", os.fspath(name).encode()) for name in loras]
        rows = ffi.new("char *[]", names or [ffi.NULL])
        callback = ffi.callback("bool(size_t, size_t, void *)", report)
        dev = ffi.new("char[]", device.encode()) if device is not None else ffi.NULL
        params = ffi.new("struct berth_model_params *")
        params.device, params.n_threads, params.no_mmap = dev, threads, not mmap
        params.loras, params.n_loras = rows, len(names)
        if progress is not None:
            params.progress = callback
        name = os.fspath(path).encode() if path is not None else ffi.NULL

        def open_model() -> Any:
            return not_null(lib.berth_model_open(name, params))

        try:
            handle = run_long(open_model, flag)
        except BerthError:
            if errors:
                raise errors[0] from None
            raise
        self._handle = _Handle(handle)
        self._session_options: dict[str, Any] = {"n_ctx": n_ctx, "n_batch": n_batch, "cache_type": cache_type}
        self._sessions: dict[bool, Session] = {}
        info = ffi.new("struct berth_model_info *")
        lib.berth_model_info(self._handle.c, info)
        self.path = text_of(info.path)
        """the file"""
        self.arch = text_of(info.arch)
        """name of the architecture"""
        self.n_layer, self.n_embd, self.n_vocab = int(info.n_layer), int(info.n_embd), int(info.n_vocab)
        self.n_ctx_train = int(info.n_ctx_train)
        """context of training"""
        self.bos, self.eos = int(info.bos), int(info.eos)
        """the tokens that begin and end a text; -1: none"""
        self.keys = Keys(lib.berth_model_keys(self._handle.c), self._handle)
        """the keys of the file"""

    def session(self, *, embedding: bool = False) -> Session:
        """Returns the session that the model's own methods use."""
        if embedding not in self._sessions:
            self._sessions[embedding] = Session(self, embedding=embedding, **self._session_options)
        return self._sessions[embedding]

    # ---- tokens ----

    def tokenize(self, text: str, *, add_special: bool = False, parse_special: bool = False) -> list[int]:
        """Converts a text to tokens.

        add_special: add the tokens that begin and end a text. parse_special: recognise control tokens that are spelled out.
        """
        data = text.encode()
        flags = (1 if add_special else 0) | (2 if parse_special else 0)
        room = len(data) + 8
        while True:
            tokens = ffi.new("int32_t[]", room)
            n = lib.berth_model_tokenize(self._handle.c, data, len(data), flags, tokens, room)
            if n < 0:
                raise last_error()
            if n <= room:
                return [int(token) for token in ffi.unpack(tokens, n)]
            room = n

    def detokenize(self, tokens: Sequence[int]) -> str:
        """Converts tokens to text. Control tokens have no text; incomplete characters become U+FFFD."""
        ids = ffi.new("int32_t[]", list(tokens))
        n = lib.berth_model_detokenize(self._handle.c, ids, len(tokens), ffi.NULL, 0)
        if n < 0:
            raise last_error()
        text = ffi.new("char[]", max(n, 1))
        lib.berth_model_detokenize(self._handle.c, ids, len(tokens), text, n)
        return bytes(ffi.buffer(text, n)).decode("utf-8", "replace")

    def is_end(self, token: int) -> bool:
        """Returns whether a token ends a text."""
        return bool(lib.berth_model_is_end(self._handle.c, token))

    # ---- text ----

    def generate(
        self, prompt: str, sampling: Sampling | None = None, *, on_text: Callable[[str], Any] | None = None, **options: Any
    ) -> Generated:
        """Continues a prompt and returns the new text.

        The fields of Sampling may be given as options: generate("The", max_tokens=20, temperature=0). on_text: called with each
        piece of the text, in another thread than the main thread; if it returns False, the call ends with the text so far. Ctrl-C
        ends the call and raises KeyboardInterrupt.
        """
        return self.session().generate(prompt, sampling, on_text=on_text, **options)

    def stream(self, prompt: str, sampling: Sampling | None = None, **options: Any) -> Iterator[str]:
        """Continues a prompt and yields the new text in pieces while it is generated. Leaving the loop ends the generation."""
        return self.session().stream(prompt, sampling, **options)

    def chat(self, *, system: str | None = None, template: str | None = None) -> Chat:
        """Starts a conversation. template: chatml, llama3, gemma, ...; None: the template of the model file."""
        return Chat(self.session(), system=system, template=template)

    def answer(self, messages: Sequence[Message], sampling: Sampling | None = None, **options: Any) -> Generated:
        """Returns the answer to a conversation, whose last message is the user's. See generate."""
        chat = self.chat()
        for message in messages:
            chat.add(message["role"], message["content"])
        return chat.answer(sampling, **options)

    def embed(self, texts: str | Sequence[str], *, pooling: str = "mean", normalize: bool = True) -> Array:
        """Returns the embedding of a text, or a matrix with one row per text.

        pooling: mean: average over all tokens; last: the last token. normalize: scale the vectors to length 1.
        """
        session = self.session(embedding=True)
        if isinstance(texts, str):
            return session.embed(texts, pooling=pooling, normalize=normalize)
        rows = [session.embed(text, pooling=pooling, normalize=normalize) for text in texts]
        return np.stack(rows) if rows else np.zeros((0, self.n_embd), np.float32)

    def memory(self) -> list[dict[str, Any]]:
        """Returns the memory on each device in bytes: device, weights, cache, compute, bound, work."""
        return self.session().memory()

    def __repr__(self) -> str:
        return f"Model({self.path!r}, {self.arch}, {self.n_layer} layers, {self.n_vocab} tokens)"


__all__ = ["Chat", "Generated", "Message", "Model", "Sampling", "Session", "StoppedError"]
