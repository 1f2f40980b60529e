# SPDX-License-Identifier: MIT
"""Tests the planner: forms of items, limits, faults, files, pictures, schedules, and Ctrl-C."""

import json
import os
import signal
import threading
import time
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

import berth


def random_items(n, seed):
    rng = np.random.default_rng(seed)
    first = rng.integers(0, n // 4 + 1, n)
    return berth.make_items(first, first + rng.integers(0, 40, n), rng.integers(1, 1000, n) * 64, align=64)


def hard_items():
    """Items whose optimum the search does not find within minutes."""
    rng = np.random.default_rng(3)
    first = rng.integers(0, 1251, 5000)
    return berth.make_items(first, first + rng.integers(0, 400, 5000), rng.integers(1, 1000, 5000))


def collides(items, offsets):
    """Whether two items share bytes, by comparing all pairs."""
    first, last, size = items["first"], items["last"], items["size"].astype(np.int64)
    start = offsets.astype(np.int64)
    end = start + size
    alive = (first[:, None] <= last[None]) & (first[None] <= last[:, None])
    shares = (start[:, None] < end[None]) & (start[None] < end[:, None])
    return bool(np.triu(alive & shares, 1).any())


@pytest.mark.parametrize("seed", range(5))
def test_plan_is_valid(seed):
    items = random_items(300, seed)
    plan = berth.plan(items)
    assert not collides(items, plan.offsets)
    assert plan.verify() is None
    assert plan.peak == int((plan.offsets + items["size"]).max())
    assert plan.bound <= plan.peak and plan.gap == pytest.approx(plan.peak / plan.bound - 1)
    live = max(int(items["size"][(items["first"] <= t) & (t <= items["last"])].sum()) for t in range(200))
    assert berth.bound(items) >= live and plan.bound >= live
    assert plan.items is items  # not copied


def test_forms_of_items():
    rows = [(0, 2, 100), (1, 3, 50), (3, 4, 100)]
    peaks = {
        berth.plan(rows).peak,
        berth.plan(np.array(rows)).peak,
        berth.plan({"first": [0, 1, 3], "last": [2, 3, 4], "size": [100, 50, 100]}).peak,
        berth.plan(np.array(rows, dtype=[("first", "i4"), ("last", "i4"), ("size", "i8")])).peak,
    }
    assert peaks == {150}
    assert berth.plan([]).peak == 0
    with pytest.raises(ValueError, match="unknown column 'length'"):
        berth.plan(np.zeros(1, dtype=[("length", "i4")]))
    with pytest.raises(ValueError, match="rows of"):
        berth.plan(np.zeros((3, 2)))


def test_properties_of_items():
    items = berth.make_items([0, 0, 0], [1, 1, 1], [10, 10, 10], align=[1, 64, 1], fixed=[128, berth.ANY, berth.ANY])
    plan = berth.plan(items)
    assert plan.offsets[0] == 128 and plan.offsets[1] % 64 == 0
    same = berth.plan(berth.make_items([0, 0], [1, 1], [10, 20], alias=1))
    assert same.offsets[0] == same.offsets[1] and same.peak == 20
    apart = berth.plan(berth.make_items([0, 0], [1, 1], [10, 20], pool=[0, 1]))
    assert list(apart.offsets) == [0, 0] and apart.peak == 30


def test_limit_and_chunks():
    items = berth.make_items([0, 0], [1, 1], [60, 60])
    assert berth.plan(items, limit=200).fits
    tight = berth.plan(items, limit=100)
    assert not tight.fits and tight.proven
    chunked = berth.plan(items, chunk=100)
    assert sorted(chunked.offsets) == [0, 100] and chunked.verify() is None
    assert "<svg" in chunked.svg()


def test_faults():
    plan = berth.plan([(0, 2, 100), (1, 3, 50), (3, 4, 100)])
    plan.offsets[1] = plan.offsets[0]
    fault = plan.verify()
    assert fault is not None and (fault.kind, fault.i, fault.j) == ("collide", 0, 1)
    assert "items 0 and 1 are alive at the same time" in fault.text
    fault = berth.verify(berth.make_items([0], [1], [8], align=16), [8])
    assert fault is not None and fault.kind == "align"
    with pytest.raises(berth.BerthError, match="item 0 ends at step 2, before it starts at 3"):
        berth.plan([(3, 2, 100)])
    with pytest.raises(ValueError, match="there are 2 offsets, but 1 items"):
        berth.verify([(0, 1, 8)], [0, 8])
    with pytest.raises(ValueError, match="start has 1 offsets"):
        berth.plan([(0, 1, 8), (0, 1, 8)], start=np.zeros(1))


def test_search_improves_and_reports():
    items = random_items(2000, 1)
    seen = []
    fast = berth.plan(items)
    best = berth.plan(items, time_limit=0.3, progress=lambda peak, bound: seen.append((peak, bound)))
    assert best.peak <= fast.peak and best.verify() is None
    assert all(bound <= peak for peak, bound in seen)
    again = berth.plan(items, start=best.offsets)
    assert again.peak <= best.peak


def test_progress_ends_the_search():
    items = hard_items()
    start = time.monotonic()
    plan = berth.plan(items, time_limit=60, progress=lambda peak, bound: False)
    assert plan.verify() is None and not plan.proven and time.monotonic() - start < 20

    def fail(peak, bound):
        raise RuntimeError("from the callback")

    with pytest.raises(RuntimeError, match="from the callback"):
        berth.plan(items, time_limit=60, progress=fail)


def test_interrupt():
    items = hard_items()
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    start = time.monotonic()
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        berth.plan(items, time_limit=60)
    assert time.monotonic() - start < 20


def test_releases_the_gil():
    items = hard_items()
    count = 0
    worker = threading.Thread(target=lambda: berth.plan(items, time_limit=0.5))
    worker.start()
    while worker.is_alive():
        count += 1
        time.sleep(0.01)
    worker.join()
    assert count > 10


def test_pictures_and_files(tmp_path):
    items = random_items(50, 5)
    plan = berth.plan(berth.PlanInput(items, [f"value <{i}>" for i in range(50)], ops=["MUL_MAT"] * 49 + [""], title="a & b"))
    root = ElementTree.fromstring(plan._repr_svg_())
    assert root.tag.endswith("svg") and len(root.findall(".//{*}rect")) >= 50
    assert plan.html().startswith("<!doctype html>")
    assert json.loads(plan.json())["items"][3]["id"] == "value <3>"
    for end in (".csv", ".json", ".svg", ".html"):
        plan.save(tmp_path / ("plan" + end))
    for end in (".csv", ".json"):
        back = berth.read_plan(tmp_path / ("plan" + end))
        assert (back.offsets == plan.offsets).all() and back.names[3] == "value <3>"
        for column in ("first", "last", "size"):
            assert (back.items[column] == items[column]).all()
    with pytest.raises(ValueError, match="must end in"):
        plan.save(tmp_path / "plan.txt")
    with pytest.raises(berth.BerthError, match="nowhere.csv"):
        berth.read_plan(tmp_path / "nowhere.csv")
    plan.offsets[:] = 0
    with pytest.raises(berth.BerthError, match="not a valid plan"):
        plan.svg()


def test_schedule():
    ops = [berth.Op(0, flags=berth.INPUT), berth.Op(100, [0]), berth.Op(100, [1]), berth.Op(100, [2]), berth.Op(100, [3, 1])]
    roomy = berth.schedule(ops, 1000)
    assert roomy.fits and roomy.proven and roomy.n_recomputed == 0 and roomy.cost == roomy.cost_once
    tight = berth.schedule(ops, 300)
    assert tight.fits and tight.peak <= 300
    impossible = berth.schedule(ops, 150)
    assert not impossible.fits and impossible.proven
    chain = [berth.Op(10, flags=berth.INPUT)]
    chain += [berth.Op(100, [i]) for i in range(6)]
    chain += [berth.Op(100, [6, 1], flags=berth.OUTPUT)]
    small = berth.schedule(chain, 320)
    assert small.fits and small.cost >= small.cost_once
    with pytest.raises(berth.BerthError):
        berth.schedule([berth.Op(8, [5])], 100)
