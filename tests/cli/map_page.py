#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# map_page.py BERTH CHROMIUM [SHOTS]: the page of `berth map` in a browser: it loads without errors and without requests, shows the
# tensor at the pointer and the reason for its address, searches by name, compares two plans, fits on a phone, and moves smoothly
# with 10,000 tensors. Screenshots go to the folder SHOTS, if given. It uses only Python's standard library: the browser is
# controlled through its debugging pipe, with JSON messages that end in NUL.
import base64
import json
import os
import random
import subprocess
import sys
import tempfile

FRAMES = 60         # frames of the measured movement over 10,000 tensors
FRAME_MS_MAX = 100  # limit for the median frame time: several times that of an idle machine, for busy ones without a GPU


class Browser:
    """Chromium without a window, one page."""

    def __init__(self, path, profile):
        ours_read, theirs_write = os.pipe()
        theirs_read, ours_write = os.pipe()
        self.to, self.by = os.fdopen(ours_write, "wb", buffering=0), os.fdopen(ours_read, "rb", buffering=0)

        def pipes():  # the browser reads from 3 and writes to 4
            low = os.dup(theirs_read), os.dup(theirs_write)
            os.dup2(low[0], 3)
            os.dup2(low[1], 4)

        self.process = subprocess.Popen(
            [path, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-extensions",
             "--hide-scrollbars", "--remote-debugging-pipe", f"--user-data-dir={profile}", "--window-size=1400,800", "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=pipes, close_fds=False)
        os.close(theirs_read)
        os.close(theirs_write)
        self.rest, self.n, self.session, self.errors, self.requests, self.loaded = b"", 0, None, [], [], False
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")

    def message(self):
        while b"\0" not in self.rest:
            piece = self.by.read(1 << 20)
            if not piece:
                raise RuntimeError("the browser is gone")
            self.rest += piece
        text, self.rest = self.rest.split(b"\0", 1)
        return json.loads(text)

    def note(self, event):
        method, params = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.errors.append(params["exceptionDetails"].get("exception", {}).get("description", "exception"))
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.errors.append(params["entry"]["text"])
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "assert"):
            self.errors.append("console: " + json.dumps(params["args"]))
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Page.loadEventFired":
            self.loaded = True

    def call(self, method, **params):
        self.n += 1
        request = {"id": self.n, "method": method, "params": params}
        if self.session:
            request["sessionId"] = self.session
        self.to.write(json.dumps(request).encode() + b"\0")
        while True:
            answer = self.message()
            if answer.get("id") == self.n:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.note(answer)

    def open(self, path, theme="light"):
        self.errors, self.requests, self.loaded = [], [], False
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])
        self.call("Page.navigate", url="file://" + path)
        while not self.loaded:
            self.note(self.message())
        self.settle()

    def js(self, text):
        result = self.call("Runtime.evaluate", expression=text, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(text + ": " + result["exceptionDetails"].get("exception", {}).get("description", "failed"))
        return result["result"].get("value")

    def settle(self, ms=60):
        self.js(f"new Promise(done => setTimeout(() => requestAnimationFrame(() => requestAnimationFrame(done)), {ms}))")

    def mouse(self, kind, x, y, **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)
        self.settle(20)

    def click(self, x, y):
        self.mouse("mousePressed", x, y, button="left", clickCount=1)
        self.mouse("mouseReleased", x, y, button="left", clickCount=1)

    def key(self, key, code=""):
        text = key if len(key) == 1 else ""
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, code=code, text=text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, code=code)
        self.settle(20)

    def shot(self, folder, name):
        if folder:
            with open(os.path.join(folder, name + ".png"), "wb") as file:
                file.write(base64.b64decode(self.call("Page.captureScreenshot")["data"]))

    def close(self):
        self.session = None
        try:
            self.call("Browser.close")
        except (RuntimeError, OSError):
            pass
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


# ---- plans ----

def tensor(name, op, node, shape=(64, 4, 1, 1)):
    return {"name": name, "op": op, "type": "f32", "shape": list(shape), "node": node}


def small_plan(lift):
    """Six items in two buffers; with `lift`, one of them is higher than necessary."""
    items = [
        {"id": "inp", "first": 0, "last": 1, "size": 1024, "offset": 0, "pool": 0, "tensors": [{"name": "inp", "op": "NONE", "type": "f32", "shape": [64, 4, 1, 1]}]},
        {"id": "norm", "first": 0, "last": 3, "size": 1024, "offset": 1024, "pool": 0, "tensors": [tensor("norm", "RMS_NORM", 0), tensor("norm_w", "MUL", 2)]},
        {"id": "q <b>", "first": 2, "last": 5, "size": 1024, "offset": 0, "pool": 0, "tensors": [tensor("q </script><b>", "MUL_MAT", 2)]},
        {"id": "soft", "first": 3, "last": 6, "size": 2048, "offset": 4096 if lift else 2048, "pool": 0, "tensors": [tensor("soft", "SOFT_MAX", 3, (64, 8, 1, 1))]},
        {"id": "out", "first": 6, "last": 7, "size": 2048, "offset": 0, "pool": 0, "tensors": [tensor("out", "SILU", 6, (64, 8, 1, 1))]},
        {"id": "host", "first": 0, "last": 7, "size": 4096, "offset": 0, "pool": 1, "tensors": [tensor("host", "CPY", 0)]},
    ]
    return {"items": items, "pools": [{"pool": 0, "name": "GPU0"}, {"pool": 1, "name": "CPU"}]}


def large_plan(n):
    draw = random.Random(7)
    ops = ["MUL_MAT", "ADD", "RMS_NORM", "ROPE", "SOFT_MAX", "SILU", "CPY", "CONV_2D", "SSM_SCAN", "ARGSORT"]
    items = []
    for i in range(n):
        items.append({"id": f"t{i}", "first": i, "last": i + draw.randrange(1, 60), "size": 4096 * draw.randrange(1, 64),
                      "tensors": [tensor(f"layer.{i // 20}.t{i}", draw.choice(ops), i)]})
    return {"items": items}


class Test:
    def __init__(self, berth, folder, browser, shots):
        self.berth, self.folder, self.browser, self.shots, self.n_bad, self.n = berth, folder, browser, shots, 0, 0

    def check(self, ok, what):
        self.n += 1
        if not ok:
            self.n_bad += 1
            print("FAILED: " + what)

    def write(self, name, plan):
        path = os.path.join(self.folder, name)
        with open(path, "w") as file:
            json.dump(plan, file)
        return path

    def map(self, out, *paths):
        out = os.path.join(self.folder, out)
        subprocess.run([self.berth, "map", "-o", out, *paths], check=True)
        return out

    def calm(self, what):
        self.check(self.browser.errors == [], f"{what}: complaints: {self.browser.errors}")
        outside = [url for url in self.browser.requests if not url.startswith(("file:", "data:"))]
        self.check(outside == [], f"{what}: asks for {outside}")

    def resized(self):
        """Returns a pixel of the map in the frame in which it is resized: the background colour, never an undrawn canvas."""
        return self.browser.js("""new Promise(done => {
            const main = document.querySelector("main"), canvas = document.getElementById("map");
            let n = 0;
            const watch = new ResizeObserver(() => {
                if (n++ === 0) {
                    main.style.marginBottom = "40px";
                } else {
                    watch.disconnect();
                    main.style.marginBottom = "";
                    done([...canvas.getContext("2d").getImageData(1, 1, 1, 1).data]);
                }
            });
            watch.observe(main);
        })""")

    def details(self):
        return self.browser.js("document.getElementById('details').hidden ? '' : document.getElementById('details').innerText")

    def soon(self, condition, what):
        """Waits for a condition, because input reaches the page with a delay."""
        for _ in range(150):
            if self.browser.js(condition):
                self.check(True, what)
                return
            self.browser.settle(20)
        self.check(False, what)

    def hover(self, index, name):
        at = self.browser.js(f"berthMap.locate({index}, {json.dumps(name)})")
        self.browser.mouse("mouseMoved", at["x"], at["y"])
        chosen = "berthMap.state.hover && berthMap.state.hover.plan"
        self.soon(f"({chosen}.tensors.name[berthMap.state.hover.i]) === {json.dumps(name)} && {chosen}.index === {index}", f"'{name}' is not found under the pointer")
        return self.details()

    def expect(self, text, *parts):
        for part in parts:
            self.check(part in text, f"no '{part}' in the details: {text!r}")

    # ---- the cases ----

    def one_plan(self):
        b = self.browser
        b.open(self.map("one.html", self.write("one.json", small_plan(False))))
        self.check(b.js("berthMap.painter.draws") > 0, "nothing is drawn")
        self.check(b.js("document.querySelectorAll('#buffers button').length") == 2, "no tab for each buffer")
        text = self.hover(0, "soft")
        self.expect(text, "soft", "SOFT_MAX, attention", "64 \u00d7 8 f32", "2,048 bytes (2 KiB)", "step 3", "step 6", "It cannot be lower: ",
                    "norm_w", "2 KiB to 4 KiB")
        self.expect(self.hover(0, "norm"), "RMS_NORM, norm", "where \u201cnorm_w\u201d reuses its memory")
        self.expect(self.hover(0, "out"), "activation", "It is at the bottom")
        self.expect(self.hover(0, "q </script><b>"), "q </script><b>", "matrix product")
        b.shot(self.shots, "hover")
        at = b.js("berthMap.locate(0, 'soft')")
        b.click(at["x"], at["y"])
        self.soon("berthMap.state.kept !== null", "a click does not keep the details")
        alive = b.js("[...document.querySelectorAll('#details .alive li button')].map(x => x.textContent)")
        self.check("soft" in alive and len(alive) > 1, f"a click does not list the live values: {alive}")
        sizes = b.js("berthMap.plans[0].listAt(0, 3).map(i => berthMap.plans[0].items.size[berthMap.plans[0].tensors.item[i]])")
        self.check(sizes == sorted(sizes, reverse=True) and sum(sizes) == b.js("berthMap.plans[0].aliveAt(0, 3).bytes"), f"alive: {sizes}")
        other = next(name for name in alive if name != "soft")
        b.js(f"[...document.querySelectorAll('#details .alive li button')].find(x => x.textContent === {json.dumps(other)}).click()")
        self.expect(self.details(), other)
        b.shot(self.shots, "alive")
        b.js(f"[...document.querySelectorAll('#details .alive li button')].find(x => x.textContent === 'soft').click()")
        b.mouse("mouseMoved", at["x"], 5)
        self.expect(self.details(), "soft")
        b.key("Escape")
        self.soon("document.getElementById('details').hidden", "Escape keeps the details")
        b.key("]")
        self.soon("berthMap.state.buffer === 1", "] does not go to the next buffer")
        self.expect(self.hover(0, "host"), "host", "CPU", "4,096 bytes")
        self.check(self.resized() == [255, 255, 255, 255], "a resized map is not drawn immediately")
        self.calm("one plan")

    def budget(self):
        b = self.browser
        costs = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "plan", "costs.csv")
        b.open(self.map("budget.html", "--budget", "70K", costs))
        self.check(b.js("berthMap.painter.hatched") == 1, "a recomputed value is not hatched")
        self.expect(self.hover(0, "b (again)"), "to keep the memory limit")
        b.shot(self.shots, "budget")
        self.calm("a budget")

    # The sources and the readers of a tensor are listed, outlined, and can be selected.
    def links(self):
        b = self.browser
        model = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "tales-3m-q8_0.gguf")
        b.open(self.map("links.html", "-c", "256", "-b", "64", model))
        names = "(list => list.map(i => berthMap.plans[0].tensors.name[i]).sort())"
        of = "berthMap.plans[0].linksOf(berthMap.plans[0].tensors.name.indexOf({}))"
        norm, gate = of.format("'blk.1.attn_norm'"), of.format("'blk.1.ffn.gate'")
        self.check(b.js(f"{names}({norm}.to)") == ["blk.1.attn.k_flat", "blk.1.attn.q_flat", "blk.1.attn.v_flat"], "who reads the norm: " + str(b.js(f"{names}({norm}.to)")))
        self.check("blk.1.ffn_norm" in b.js(f"{names}({gate}.from)"), "what the gate is made from: " + str(b.js(f"{names}({gate}.from)")))
        at = b.js("berthMap.locate(0, 'blk.1.ffn.gate')")
        b.click(at["x"], at["y"])
        self.soon("berthMap.state.kept !== null", "a click does not keep the details")
        kept = "berthMap.plans[0].tensors.name[berthMap.state.kept.i]"
        self.check(b.js(kept) == "blk.1.ffn.gate", f"a click chose {b.js(kept)}")
        self.expect(self.details(), "Sources", "Readers")
        b.shot(self.shots, "links")
        b.js("document.querySelector('#details .links.from button').click()")
        self.check(b.js(kept) == "blk.1.ffn_norm", f"the button chose {b.js(kept)}")
        self.calm("links")

    def zoom(self):
        b = self.browser
        b.open(os.path.join(self.folder, "one.html"))
        span = "berthMap.view.x1 - berthMap.view.x0"
        at, whole = b.js("berthMap.locate(0, 'soft')"), b.js(span)
        b.mouse("mouseWheel", at["x"], at["y"], deltaX=0, deltaY=-120)
        self.soon(f"{span} < {whole}", "the wheel does not zoom")
        narrow = b.js(span)
        left = b.js("berthMap.view.x0")
        b.mouse("mousePressed", 700, 400, button="left", clickCount=1)
        b.mouse("mouseMoved", 640, 400, button="left", buttons=1)
        b.mouse("mouseMoved", 600, 400, button="left", buttons=1)
        b.mouse("mouseReleased", 600, 400, button="left", clickCount=1)
        self.soon(f"berthMap.view.x0 > {left}", "dragging does not move")
        b.key("+", "NumpadAdd")
        self.soon(f"{span} < {narrow}", "+ does not zoom")
        b.key("0")
        self.soon(f"Math.abs({span} - {whole}) < 1e-9", "0 does not show everything")
        self.calm("zoom")

    def search(self):
        b = self.browser
        b.open(os.path.join(self.folder, "one.html"))
        b.key("/")
        for letter in "host":
            b.key(letter)
        self.soon("document.getElementById('matches').textContent === '1'", "search counts wrong")
        b.key("Enter")
        self.soon("berthMap.state.buffer === 1 && berthMap.state.kept", "search does not go to the buffer")
        self.expect(self.details(), "host", "CPY")
        b.key("Escape")
        self.soon("berthMap.state.search === '' && document.getElementById('details').hidden", "Escape does not end the search")
        self.calm("search")

    def compare(self):
        b = self.browser
        before = self.write("before.json", small_plan(True))
        b.open(self.map("two.html", before, os.path.join(self.folder, "one.json")), "dark")
        self.check(b.js("berthMap.painter.panels.length") == 2, "no panel for each plan")
        self.check(b.js("berthMap.painter.panels[0].caption").startswith("Before: before.json"), "the first is not before")
        stats = b.js("document.getElementById('stats').innerText").replace("\n", " ")
        for part in ("peak 4 KiB", "before 6 KiB", "\u221233.33%"):
            self.check(part in stats, f"no '{part}' in {stats!r}")
        self.expect(self.hover(0, "soft"), "It could be lower, at 2 KiB. It reaches the peak", "after", "at 2 KiB")
        b.shot(self.shots, "compare-dark")
        self.expect(self.hover(1, "soft"), "It cannot be lower", "before", "at 4 KiB")
        b.key("2")
        self.soon("berthMap.painter.panels.map(p => p.plan.index).join() === '0'", "2 does not show the plan before")
        self.check(b.js("document.documentElement.dataset.theme") == "dark", "dark is not followed")
        b.key("t")
        self.soon("document.documentElement.dataset.theme === 'light'", "t does not change the theme")
        self.calm("comparison")

    def narrow(self):
        """A phone's screen: the map fills most of it, nothing overflows, and details do not cover their tensor."""
        b = self.browser
        b.call("Emulation.setDeviceMetricsOverride", width=420, height=800, deviceScaleFactor=1, mobile=True)
        plan = small_plan(False)
        plan["pools"][0]["name"] = "a_rather_long_name_of_a_buffer_type"
        path = self.write("a-model-with-a-long-name.of-a-prompt-of-512-tokens.json", plan)
        b.open(self.map("narrow.html", path, self.write("a-model-with-a-long-name.as-it-was-planned-before.json", plan)))
        header = b.js("document.querySelector('header').offsetHeight")
        self.check(header <= 200, f"narrow: {header} of 800 pixels stand above the map")
        self.check(b.js("[...document.querySelectorAll('.group button')].every(x => x.scrollHeight <= x.clientHeight + 1)"), "narrow: text spills out of a tab")
        self.check(b.js("document.documentElement.scrollWidth") <= 420, "narrow: the page is wider than the screen")
        cut = b.js("berthMap.painter.panels.map(p => { const c = berthMap.painter.context; c.font = '600 ' + berthMap.painter.font;"
                   " const text = berthMap.painter.shorten(p.caption, p.w); return [text, c.measureText(text).width <= p.w]; })")
        self.check(all(fits and "\u2026" in text for text, fits in cut), f"narrow: titles are cut off: {cut}")
        b.shot(self.shots, "narrow")
        b.open(self.map("narrow-one.html", path))
        at = b.js("berthMap.locate(0, 'soft')")
        b.click(at["x"], at["y"])
        self.soon("berthMap.state.kept !== null", "narrow: a tap does not keep the details")
        b.settle(100)
        over = b.js("(() => { const a = document.getElementById('details').getBoundingClientRect(), m = document.getElementById('over').getBoundingClientRect();"
                    " return [a.top >= m.bottom - 1, m.height]; })()")
        self.check(over[0] and over[1] > 200, f"narrow: the details cover the map: {over}")
        self.expect(self.details(), "soft", "It cannot be lower")
        b.shot(self.shots, "narrow-details")
        b.key("Escape")
        self.soon("document.getElementById('details').hidden && !document.querySelector('main.sheet')", "narrow: the map does not get its place back")
        self.calm("narrow")
        b.call("Emulation.clearDeviceMetricsOverride")

    def empty(self):
        self.browser.open(self.map("none.html", self.write("none.json", {"items": []})))
        self.check("nothing to draw" in self.browser.js("document.getElementById('status').textContent"), "an empty plan has no message")
        self.calm("an empty plan")

    def smooth(self):
        b = self.browser
        b.open(self.map("large.html", self.write("large.json", large_plan(20000))))
        self.check(b.js("berthMap.plans[0].tensors.n") == 20000, "tensors are missing")
        b.shot(self.shots, "large")
        figures = b.js("""new Promise(done => {
          const times = [], paints = [], w = berthMap.view.x1 - berthMap.view.x0;
          let last = 0;
          const frame = now => {
            if (last > 0) { times.push(now - last); paints.push(berthMap.painter.lastMs); }
            last = now;
            if (times.length === %d) {
              const sort = list => list.sort((a, b) => a - b);
              sort(times); sort(paints);
              done({median: times[times.length >> 1], p95: times[Math.floor(times.length * 0.95)], paint: paints[paints.length >> 1], most: paints[paints.length - 1]});
            } else {
              const k = times.length, part = k < %d ? 1 : 0.2;
              berthMap.setView(w * 0.001 * k, w * 0.001 * k + w * part * 0.97, berthMap.view.y0, berthMap.view.y1);
              requestAnimationFrame(frame);
            }
          };
          requestAnimationFrame(frame);
        })""" % (FRAMES, FRAMES // 2))
        print("20,000 tensors: a frame takes {median:.1f} ms (95%: {p95:.1f}), painting {paint:.1f} ms (most: {most:.1f})".format(**figures))
        self.check(figures["median"] <= FRAME_MS_MAX, f"a frame takes {figures['median']:.1f} ms, more than {FRAME_MS_MAX}")
        took = b.js("""(() => { const p = berthMap.plans[0], start = performance.now();
          for (let i = 0; i < 20; i++) { p.find(0, 5000, i * 1e5, 0, 0); p.why(i * 400); } return (performance.now() - start) / 20; })()""")
        print(f"finding the tensor at the pointer and the reason for its address: {took:.2f} ms")
        self.check(took < FRAME_MS_MAX, f"the pointer's answer takes {took:.1f} ms")
        b.js("berthMap.fit()")
        self.soon("berthMap.view.x0 === 0 && berthMap.view.x1 > 20000", "fit does not show everything")
        b.js("berthMap.setView(4900, 5100, 0, berthMap.view.y1)")
        self.expect(self.hover(0, "layer.250.t5000"), "step 5000")
        b.key("/")
        for letter in "t5000":
            b.key(letter)
        b.key("Enter")
        self.soon("berthMap.state.kept && berthMap.view.x1 - berthMap.view.x0 < 1000", "search does not go to the tensor")
        self.expect(self.details(), "layer.250.t5000", "step 5000")
        b.shot(self.shots, "large-search")
        self.calm("20,000 tensors")

    def picture(self):
        """The SVG is valid XML that the browser draws, with one rectangle per tensor."""
        b = self.browser
        b.open(self.map("two.svg", os.path.join(self.folder, "before.json"), os.path.join(self.folder, "one.json")))
        self.check(b.js("document.documentElement.nodeName") == "svg", "the SVG is invalid")
        titles = b.js("[...document.querySelectorAll('g > title')].map(t => t.textContent)")
        self.check(len(titles) == 14, f"{len(titles)} rectangles, not 14")
        self.check(any(t.startswith("q </script><b>, MUL_MAT f32 [64, 4, 1, 1]: 1 KiB at 0, steps 2 to 5") for t in titles), f"titles: {titles}")
        b.shot(self.shots, "picture")
        self.calm("the SVG")


def main():
    browser = sys.argv[2]
    shots = sys.argv[3] if len(sys.argv) > 3 else None
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        page = Browser(browser, os.path.join(folder, "profile"))
        test = Test(os.path.abspath(sys.argv[1]), folder, page, shots)
        try:
            for case in (test.one_plan, test.budget, test.links, test.zoom, test.search, test.compare, test.narrow, test.empty, test.smooth, test.picture):
                case()
        finally:
            page.close()
    print(f"{test.n} checks, {test.n_bad} failed")
    return 1 if test.n_bad else 0


if __name__ == "__main__":
    sys.exit(main())
