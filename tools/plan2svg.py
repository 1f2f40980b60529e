#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# plan2svg.py: draws a plan (CSV with a column `offset`, as `berth plan --out` writes it) as SVG: time to the right, address upwards,
# one rectangle an item, the peak, and below it the bytes alive at each step. Only Python's standard library.
#
#     berth plan tests/data/plan/transformer.csv --out /tmp/plan.csv
#     tools/plan2svg.py /tmp/plan.csv > docs/img/plan.svg
import csv
import sys
from html import escape

WIDTH, HEIGHT = 960, 520           # of the map
LEFT, TOP, GAP, LIVE = 92, 56, 34, 84  # margins, space between map and curve, height of the curve
PALETTE = ["#4e79a7", "#d9772b", "#4f9145", "#e15759", "#3d8f89", "#b07aa1", "#b6992d", "#9c755f", "#d37295", "#6b7fa8"]


def human(size, like=None):
    """Bytes with the unit that fits `like`, or the size itself."""
    like = size if like is None else like
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB"):
        if like < 1024 or unit == "TiB":
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.2f} {unit}"
        size, like = size / 1024, like / 1024


def nice_step(span, most):
    """The least of 1, 2, 5, 10, ... that cuts span into at most `most` pieces."""
    step = 1
    while True:
        for factor in (1, 2, 5):
            if span / (step * factor) <= most:
                return step * factor
        step *= 10


def read(path):
    with open(path, newline="") as file:
        rows = [(r["id"], int(r["lower"]), int(r["upper"]), int(r["size"]), int(r["offset"])) for r in csv.DictReader(file)]
    return [r for r in rows if r[3] > 0]


def live_curve(items):
    events = {}
    for _, lower, upper, size, _ in items:
        events[lower] = events.get(lower, 0) + size
        events[upper] = events.get(upper, 0) - size
    live, curve = 0, []
    for step in sorted(events):
        live += events[step]
        curve.append((step, live))
    return curve


def text(x, y, what, anchor="start", size=12, fill="#333", more=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{fill}" {more}>{escape(what)}</text>'


def draw(items, title):
    first = min(i[1] for i in items)
    last = max(i[2] for i in items)
    peak = max(i[4] + i[3] for i in items)
    curve = live_curve(items)
    bound = max(live for _, live in curve)
    x = lambda step: LEFT + (step - first) * WIDTH / (last - first)
    y = lambda address: TOP + HEIGHT - address * HEIGHT / peak
    bottom = TOP + HEIGHT + GAP + LIVE
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 24} {bottom + 40}" '
           'font-family="Helvetica, Arial, sans-serif">',
           '<rect width="100%" height="100%" fill="#fff"/>',
           text(LEFT, 26, title, size=17, more='font-weight="bold"'),
           text(LEFT, 45, f"{len(items)} buffers, peak {human(peak)}, most alive {human(bound)}"
                + (": no plan needs less" if peak == bound else f", gap {100 * (peak / bound - 1):.2f}%"), fill="#666")]
    step = nice_step(last - first, 20)
    for k in range(-(-first // step) * step, last + 1, step):
        out.append(f'<path d="M{x(k):.1f} {TOP}V{TOP + HEIGHT}M{x(k):.1f} {bottom - LIVE}V{bottom}" stroke="#eee"/>')
        out.append(text(x(k), bottom + 16, str(k), "middle", 11, "#666"))
    for k in range(5):
        out.append(f'<path d="M{LEFT - 4} {y(peak * k / 4):.1f}H{LEFT + WIDTH}" stroke="#ddd"/>')
        out.append(text(LEFT - 8, y(peak * k / 4) + 4, "0" if k == 0 else human(peak * k / 4, peak), "end", 11, "#666"))
    for i, (name, lower, upper, size, offset) in enumerate(items):
        w, h = x(upper) - x(lower), y(offset) - y(offset + size)
        fill = PALETTE[i % len(PALETTE)]
        out.append(f'<g><title>{escape(name)}: {human(size)} at {offset}, steps {lower} to {upper - 1}</title>'
                   f'<rect x="{x(lower) + 0.75:.1f}" y="{y(offset + size) + 0.75:.1f}" width="{max(w - 1.5, 0.5):.1f}" '
                   f'height="{max(h - 1.5, 0.5):.1f}" rx="2" fill="{fill}" fill-opacity="0.88"/>')
        if h >= 12 and w >= 6.2 * len(name) + 6:
            out.append(text((x(lower) + x(upper)) / 2, y(offset + size / 2) + 4, name, "middle", 11, "#fff"))
        elif w >= 13 and h >= 6.2 * len(name) + 6:
            cx, cy = (x(lower) + x(upper)) / 2 + 4, y(offset + size / 2)
            out.append(text(cx, cy, name, "middle", 11, "#fff", f'transform="rotate(-90 {cx:.1f} {cy:.1f})"'))
        out.append("</g>")
    out.append(f'<path d="M{LEFT} {y(peak):.1f}H{LEFT + WIDTH}" stroke="#c0392b" stroke-width="1.5" stroke-dasharray="6 4"/>')
    scale = LIVE / bound
    path = f"M{x(first):.1f} {bottom}"
    for (at, live), (following, _) in zip(curve, curve[1:] + [(last, 0)]):
        path += f"V{bottom - live * scale:.1f}H{x(following):.1f}"
    out.append(f'<path d="{path}V{bottom}Z" fill="#4e79a7" fill-opacity="0.25" stroke="#4e79a7"/>')
    out.append(text(LEFT - 8, bottom - LIVE + 4, human(bound), "end", 11, "#666"))
    out.append(text(LEFT - 8, bottom - LIVE / 2 + 4, "alive", "end", 11, "#666"))
    out.append(text(LEFT + WIDTH / 2, bottom + 33, "step", "middle", 12, "#666"))
    out.append(text(20, TOP + HEIGHT / 2, "address", "middle", 12, "#666", f'transform="rotate(-90 20 {TOP + HEIGHT / 2})"'))
    out.append("</svg>")
    return "\n".join(out)


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: plan2svg.py PLAN.csv [TITLE]")
    found = read(sys.argv[1])
    if not found:
        sys.exit(f"{sys.argv[1]}: nothing to draw")
    print(draw(found, sys.argv[2] if len(sys.argv) == 3 else "Every buffer has its berth"))
