# SPDX-License-Identifier: MIT
"""The memory planner: items with lifetimes in, offsets and a proven bound out.

An item is a piece of memory with a first and a last step, both included. Items that are alive at a common step share no byte.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any, Callable, Sequence, Union

import numpy as np
import numpy.typing as npt

from ._library import Flag, check, ffi, last_error, lib, not_null, run_long, text_of, written

ITEM = np.dtype(
    {
        "names": ["first", "last", "size", "align", "fixed", "alias", "pool", "is_fixed"],
        "formats": ["<i8", "<i8", "<u8", "<u8", "<u8", "<i4", "<i4", "?"],
        "offsets": [0, 8, 16, 24, 32, 40, 44, 48],
        "itemsize": 56,
    }
)
"""The layout of an item. An array of this type is passed to the planner without a copy."""

ANY = 2**64 - 1
"""In arrays of offsets: the offset is unknown."""

Array = npt.NDArray[Any]
Ints = Union[Sequence[int], Array, int]
Path = Union[str, "os.PathLike[str]"]


def make_items(
    first: Ints, last: Ints, size: Ints, *, align: Ints = 0, alias: Ints = 0, pool: Ints = 0, fixed: Ints | None = None
) -> Array:
    """Returns an array of items.

    first, last: the steps at which an item is alive, both included. size: bytes. align: the offset is a multiple of this; 0 means 1.
    alias: items of one group above 0 get the same offset. pool: items of different pools never share memory. fixed: the offset that
    the item must have, or ANY.
    """
    n = len(np.atleast_1d(np.asarray(first)))
    items: Array = np.zeros(n, ITEM)
    columns = {"first": first, "last": last, "size": size, "align": align, "alias": alias, "pool": pool}
    for name, column in columns.items():
        items[name] = column
    if fixed is not None:
        values = np.asarray(fixed, np.uint64)
        items["is_fixed"] = values != ANY
        items["fixed"] = np.where(values != ANY, values, 0)
    return items


def _items_of(items: Any) -> Array:
    """Returns items as a contiguous array of ITEM; copies only if necessary."""
    if isinstance(items, PlanInput):
        return items.items
    if isinstance(items, dict):
        return make_items(**items)
    array = np.asarray(items)
    if array.dtype == ITEM:
        return np.ascontiguousarray(array)
    if array.dtype.names is not None:
        names = array.dtype.names
        out: Array = np.zeros(array.shape, ITEM)
        for name in names:
            if name not in (ITEM.names or ()):
                raise ValueError(f"unknown column '{name}'; the columns are {', '.join(ITEM.names or ())}")
            out[name] = array[name]
        return out
    if array.ndim == 2 and array.shape[1] == 3:
        return make_items(array[:, 0], array[:, 1], array[:, 2])
    if array.size == 0:
        return np.zeros(0, ITEM)
    raise ValueError("items must be an array of berth.ITEM, a dict of columns, or rows of (first, last, size)")


def _pointer(kind: str, array: Array) -> Any:
    return ffi.cast(kind, array.ctypes.data)


@dataclass
class PlanInput:
    """The items of a file, with their names.

    read_plan reads one; onnx_items and tflite_items make one from a model.
    """

    items: Array
    """[n] the items, of type ITEM"""
    names: list[str]
    """[n] a name for each item"""
    offsets: Array | None = None
    """[n] offsets in the file; None: the file has none"""
    ops: list[str] | None = None
    """[n] the op that computes each item, such as "MUL_MAT"; "" for an input; None: unknown"""
    title: str = "plan"
    """a name for the whole, for pictures"""


@dataclass
class Fault:
    """What is wrong with a plan."""

    kind: str
    """item, align, fixed, chunk, overflow, alias or collide"""
    i: int
    """the item; -1: none"""
    j: int
    """the other item; -1: none"""
    text: str
    """a message"""


_FAULTS = (
    ("sound", "no fault"),
    ("item", "item {i} contradicts itself: it ends before it starts, or is larger than 2^62 bytes or a chunk"),
    ("align", "the offset of item {i} is not a multiple of its alignment"),
    ("fixed", "item {i} is not at its fixed offset"),
    ("chunk", "item {i} crosses the end of a chunk"),
    ("overflow", "item {i} ends above 2^63 - 1"),
    ("alias", "items {i} and {j} are in one alias group but have different offsets or pools"),
    ("collide", "items {i} and {j} are alive at the same time and share bytes"),
)


@dataclass
class Plan:
    """An offset for every item. Shown as a memory map in a notebook."""

    items: Array
    """[n] the items, of type ITEM"""
    offsets: Array
    """[n] the offset of each item, in bytes"""
    peak: int
    """bytes that the plan needs, the sum over pools"""
    bound: int
    """no plan needs less"""
    proven: bool
    """no plan has a lower peak, or the question whether the limit suffices is answered with certainty"""
    fits: bool
    """the peak is within the limit; True without a limit"""
    method: str
    """name of the method that found the plan"""
    gap: float
    """peak / bound - 1"""
    time_us: int
    """time taken, in microseconds"""
    names: list[str] | None = None
    """[n] names of the items"""
    ops: list[str] | None = None
    """[n] ops that compute the items"""
    title: str = "plan"
    """a name for pictures"""
    chunk_limit: int = 0
    """most bytes of one chunk; 0: one chunk"""
    _keep: list[Any] = field(default_factory=list, repr=False)

    def verify(self) -> Fault | None:
        """Returns the first fault of the plan, or None if it is valid. Changed offsets are checked again."""
        return verify(self.items, self.offsets, chunk=self.chunk_limit)

    def svg(self) -> str:
        """Returns the memory map as an SVG picture: addresses over time, one rectangle per item."""
        return self._map(lib.BERTH_MAP_SVG)

    def html(self) -> str:
        """Returns the memory map as an interactive page."""
        return self._map(lib.BERTH_MAP_HTML)

    def csv(self) -> str:
        """Returns items and offsets as CSV, which `berth plan` and other programs read."""
        return written(lambda file: int(lib.berth_plan_write_csv(self._set(), self._offsets(), file)))

    def json(self) -> str:
        """Returns items, offsets and the report as JSON, which `berth plan` reads."""
        return written(lambda file: int(lib.berth_plan_write_json(self._set(), self._offsets(), ffi.NULL, file)))

    def save(self, path: Path) -> None:
        """Writes the plan. The end of the name selects the format: .csv, .json, .svg or .html."""
        formats = {".csv": self.csv, ".json": self.json, ".svg": self.svg, ".html": self.html}
        end = os.path.splitext(os.fspath(path))[1]
        if end not in formats:
            raise ValueError(f"{os.fspath(path)}: the name must end in .csv, .json, .svg or .html")
        text = formats[end]()
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)

    def _repr_svg_(self) -> str:
        return self.svg()

    def _offsets(self) -> Any:
        self.offsets = np.ascontiguousarray(self.offsets, np.uint64)
        return _pointer("uint64_t *", self.offsets)

    def _map(self, kind: int) -> str:
        title = self.title.encode()
        return written(lambda file: int(lib.berth_plan_map(self._set(), self._offsets(), title, kind, file)))

    def _set(self) -> Any:
        """The plan as a struct berth_plan_set, whose memory lives as long as the plan."""
        n = len(self.items)
        names = self.names if self.names is not None else [str(i) for i in range(n)]
        texts = [ffi.new("char[]", name.encode()) for name in names]
        ids = ffi.new("char *[]", texts or [ffi.NULL])
        pools = np.unique(self.items["pool"])
        pool_name = ffi.new("char[]", b"")
        pool_rows = ffi.new("struct berth_plan_pool[]", max(len(pools), 1))
        for i, pool in enumerate(pools):
            pool_rows[i].pool = int(pool)
            pool_rows[i].name = pool_name
            pool_rows[i].chunk_limit = self.chunk_limit
        out = ffi.new("struct berth_plan_set *")
        out.n_items = n
        out.items = _pointer("struct berth_plan_item *", self.items)
        out.ids = ids
        out.offsets = self._offsets()
        out.has_offsets = n > 0
        out.has_report = True
        out.peak, out.bound, out.proven = self.peak, self.bound, self.proven
        if self.chunk_limit > 0:
            out.n_pools, out.pools = len(pools), pool_rows
        self._keep = [texts, ids, pool_rows, pool_name]
        if self.ops is not None:
            self._set_tensors(out, texts, pool_name)
        return out

    def _set_tensors(self, out: Any, names: list[Any], empty: Any) -> None:
        """One tensor per item, so that maps show its op."""
        ops = [ffi.new("char[]", op.encode()) for op in self.ops or []]
        tensors = ffi.new("struct berth_plan_tensor[]", max(len(ops), 1))
        for i, op in enumerate(ops):
            row = tensors[i]
            row.item, row.name, row.op, row.type, row.uses = i, names[i], op, empty, empty
            row.node = int(self.items["first"][i]) if self.ops and self.ops[i] else -1
        out.n_tensors, out.tensors = len(ops), tensors
        self._keep += [ops, tensors]


def plan(
    items: Any,
    *,
    limit: int = 0,
    chunk: int = 0,
    time_limit: float = 0.0,
    seed: int = 0,
    threads: int = 0,
    start: Array | None = None,
    progress: Callable[[int, int], Any] | None = None,
) -> Plan:
    """Places items in memory with a low peak.

    items: an array of ITEM, a dict of the columns of make_items, rows of (first, last, size), or a PlanInput. An array of ITEM is
    not copied.
    limit: most bytes of each pool; 0: none. A plan above the limit is not an error: fits is then False.
    chunk: most bytes of one chunk, which no item crosses; 0: one chunk.
    time_limit: seconds that the search may take after the fast path; 0: fast path only.
    seed, threads: of the search. start: offsets of a known plan.
    progress: called with (peak, bound) several times per second; if it returns False, the search ends with the best plan so far.

    Ctrl-C ends the search and raises KeyboardInterrupt.
    """
    source = items if isinstance(items, PlanInput) else None
    array = _items_of(items)
    offsets: Array = np.empty(len(array), np.uint64)
    params = ffi.new("struct berth_plan_params *")
    params.memory_limit, params.chunk_limit, params.seed, params.n_threads = limit, chunk, seed, threads
    params.time_limit_us = int(time_limit * 1e6)
    if start is not None:
        known: Array = np.ascontiguousarray(start, np.uint64)
        if len(known) != len(array):
            raise ValueError(f"start has {len(known)} offsets, but there are {len(array)} items")
        params.start = _pointer("uint64_t *", known)
    report = ffi.new("struct berth_plan_report *")
    _solve(array, params, progress, offsets, report)
    return Plan(
        items=array, offsets=offsets, peak=report.peak, bound=report.bound, proven=report.proven, fits=report.fits,
        method=text_of(report.method), gap=report.gap, time_us=report.time_us, names=source.names if source else None,
        ops=source.ops if source else None, title=source.title if source else "plan", chunk_limit=chunk,
    )  # fmt: skip


def _solve(items: Array, params: Any, progress: Callable[[int, int], Any] | None, offsets: Array, report: Any) -> None:
    flag = Flag()
    errors: list[BaseException] = []

    def watch(peak: int, bound: int, _user: Any) -> bool:
        try:
            if progress is not None and progress(peak, bound) is False:
                return False
        except BaseException as error:  # pylint: disable=broad-except
            errors.append(error)
            return False
        return not flag.is_set()

    # The fast path calls no watcher.
    callback = ffi.callback("berth_plan_watch_t", watch) if params.time_limit_us > 0 else ffi.NULL

    def solve() -> None:
        check(
            lib.berth_plan_solve_watched(
                _pointer("struct berth_plan_item *", items), len(items), params, callback, ffi.NULL,
                _pointer("uint64_t *", offsets), report,
            )
        )  # fmt: skip

    run_long(solve, flag)
    if errors:
        raise errors[0]


def verify(items: Any, offsets: Any, *, chunk: int = 0) -> Fault | None:
    """Returns the first fault of a plan, or None if it is valid."""
    array = _items_of(items)
    places: Array = np.ascontiguousarray(offsets, np.uint64)
    if len(places) != len(array):
        raise ValueError(f"there are {len(places)} offsets, but {len(array)} items")
    params = ffi.new("struct berth_plan_params *")
    params.chunk_limit = chunk
    fault = ffi.new("struct berth_plan_fault *")
    status = lib.berth_plan_check(
        _pointer("struct berth_plan_item *", array), len(array), params, _pointer("uint64_t *", places), fault
    )
    if status == lib.GGML_STATUS_SUCCESS:
        return None
    if fault.kind == lib.BERTH_PLAN_SOUND:
        raise last_error()
    kind, text = _FAULTS[fault.kind]
    return Fault(kind, fault.i, fault.j, text.format(i=fault.i, j=fault.j))


def bound(items: Any, *, chunk: int = 0) -> int:
    """Returns the bytes that every plan needs, the sum over pools, without a search."""
    array = _items_of(items)
    params = ffi.new("struct berth_plan_params *")
    params.chunk_limit = chunk
    out = ffi.new("uint64_t *")
    check(lib.berth_plan_bound(_pointer("struct berth_plan_item *", array), len(array), params, out, ffi.NULL))
    return int(out[0])


def read_plan(path: Path, *, n_ctx: int = 0, n_batch: int = 0, cache_type: str | None = None) -> PlanInput:
    """Reads the items of any file that `berth plan` accepts: CSV, JSON, a captured graph, or a model (GGUF).

    n_ctx, n_batch, cache_type: of a model, whose weights are not read.
    """
    name = os.fspath(path)
    params = ffi.new("struct berth_plan_input_params *")
    params.n_ctx, params.n_batch = n_ctx, n_batch
    kind = ffi.new("char[]", cache_type.encode()) if cache_type is not None else ffi.NULL
    params.cache_type = kind
    out = ffi.new("struct berth_plan_set **")
    check(lib.berth_plan_input_read(name.encode(), params, out))
    try:
        s = not_null(out[0])
        n = s.n_items
        items: Array = np.frombuffer(ffi.buffer(s.items, n * ITEM.itemsize), ITEM).copy() if n else np.zeros(0, ITEM)
        offsets: Array | None = np.frombuffer(ffi.buffer(s.offsets, n * 8), np.uint64).copy() if s.has_offsets else None
        names = [text_of(s.ids[i]) for i in range(n)]
        ops: list[str] | None = [""] * n if s.n_tensors > 0 else None
        for t in range(s.n_tensors):
            if ops is not None:
                ops[s.tensors[t].item] = text_of(s.tensors[t].op)
        return PlanInput(items, names, offsets, ops, os.path.basename(name))
    finally:
        lib.berth_plan_set_free(out[0])


# ---- schedules within a memory limit ----

INPUT, OUTPUT, ONCE, NO_SPILL = 1, 2, 4, 8
"""Properties of an op for schedule: not computed; kept to the end; runs once, in order; its value is not spilled."""


@dataclass
class Op:
    """A value and the op that computes it, for schedule."""

    size: int
    """bytes of the value"""
    sources: Sequence[int] = ()
    """the values that the op reads: indices of earlier ops"""
    cost: int = 1
    """of running the op once, in any unit"""
    flags: int = 0
    """INPUT, OUTPUT, ONCE and NO_SPILL, combined"""
    align: int = 0
    """the offset of the value is a multiple of this"""


@dataclass
class Schedule:
    """The result of schedule."""

    steps: list[tuple[str, int]]
    """("run", op), ("spill", op) or ("restore", op), in order"""
    fits: bool
    """the packed memory is within the limit"""
    proven: bool
    """no schedule is cheaper; or, if it does not fit, no schedule fits"""
    cost: int
    """of the schedule"""
    cost_once: int
    """of every op once"""
    peak: int
    """bytes of the packed plan of pool 0"""
    n_recomputed: int
    """number of steps that recompute a value"""
    n_spilled: int
    """number of steps that spill a value"""


def schedule(
    ops: Sequence[Op], limit: int, *, spill: int = 0, spill_cost_per_byte: float = 0.0, time_limit: float = 0.0, seed: int = 0
) -> Schedule:
    """Searches for the cheapest order of ops whose memory stays within limit bytes, by recomputing values.

    spill: bytes of a second pool to which values may be moved; 0: no spilling. spill_cost_per_byte: cost of moving a byte one way.
    A schedule that does not fit is not an error: fits is then False.
    """
    rows = ffi.new("struct berth_budget_op[]", max(len(ops), 1))
    keep = []
    for i, op in enumerate(ops):
        sources = ffi.new("int32_t[]", list(op.sources))
        keep.append(sources)
        rows[i].srcs, rows[i].n_srcs = sources, len(op.sources)
        rows[i].size, rows[i].align, rows[i].cost, rows[i].flags = op.size, op.align, op.cost, op.flags
    pools = ffi.new("struct berth_budget_pool[2]")
    pools[0].limit, pools[0].may_spill, pools[0].spill_to = limit, spill > 0, 1
    pools[0].spill_cost_per_byte = spill_cost_per_byte
    pools[1].pool, pools[1].limit = 1, spill
    params = ffi.new("struct berth_budget_params *")
    params.pools, params.n_pools = pools, 2 if spill > 0 else 1
    params.time_limit_us, params.seed = int(time_limit * 1e6), seed
    out = ffi.new("struct berth_budget_result **")
    run_long(lambda: check(lib.berth_budget_solve(rows, len(ops), params, out)), Flag())
    r = out[0]
    try:
        kinds = {lib.BERTH_BUDGET_RUN: "run", lib.BERTH_BUDGET_SPILL: "spill", lib.BERTH_BUDGET_RESTORE: "restore"}
        steps = [(kinds[r.steps[i].kind], int(r.steps[i].op)) for i in range(r.n_steps)]
        peaks = [r.uses[i].peak for i in range(r.n_uses) if r.uses[i].pool == 0]
        return Schedule(
            steps=steps, fits=r.fits, proven=r.proven, cost=r.cost, cost_once=r.cost_once, peak=peaks[0] if peaks else 0,
            n_recomputed=r.n_recomputed, n_spilled=r.n_spilled,
        )  # fmt: skip
    finally:
        lib.berth_budget_free(r)
