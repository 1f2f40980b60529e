#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# web_page.py PAGE BERTH CHROMIUM [SHOTS]: the page of `make web` in a browser, opened as a file. It plans the example, dropped files
# and a chosen file, shows the page that `berth map` writes for them, reports errors, and sends no requests. Screenshots go to the
# folder SHOTS, if given. Exit code 77: PAGE does not exist.
import base64
import gzip
import json
import os
import subprocess
import sys
import tempfile

from map_page import Browser

TESTS = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", "data"))
SOON = 1500  # polls of 20 ms: a busy machine compiles the module slowly


class Test:
    def __init__(self, page, berth, folder, browser, shots):
        self.page, self.berth, self.folder, self.browser, self.shots, self.n_bad, self.n = page, berth, folder, browser, shots, 0, 0

    def check(self, ok, what):
        self.n += 1
        if not ok:
            self.n_bad += 1
            print("FAILED: " + what)

    def answer(self, what):
        """Waits for the answer of the worker. Returns the text of the status line."""
        for _ in range(SOON):
            text = self.browser.js("document.getElementById('status').textContent")
            if not text.startswith("planning"):
                return text
            self.browser.settle(20)
        self.check(False, what + ": no answer")
        return ""

    def drop(self, name, data):
        self.browser.js(f"""(() => {{
            const bytes = Uint8Array.from(atob({json.dumps(base64.b64encode(data).decode())}), c => c.charCodeAt(0)), data = new DataTransfer();
            data.items.add(new File([bytes], {json.dumps(name)}));
            document.body.dispatchEvent(new DragEvent("drop", {{dataTransfer: data, bubbles: true, cancelable: true}}));
        }})()""")
        return self.answer(name)

    def same(self, path, title):
        """The page in the frame equals the page that `berth map` writes, and draws something."""
        out, copy = os.path.join(self.folder, "native.html"), os.path.join(self.folder, title)
        if path != copy:
            with open(path, "rb") as file, open(copy, "wb") as to:
                to.write(file.read())
        subprocess.run([self.berth, "map", "--time", "1000", "-o", out, copy], check=True)
        with open(out, encoding="utf-8") as file:
            native = file.read()
        self.check(self.browser.js("document.getElementById('map').srcdoc") == native, f"{title}: the page differs from that of berth map")
        for _ in range(SOON):
            if self.browser.js("((document.getElementById('map').contentWindow.berthMap || {}).painter || {}).draws > 0"):
                self.check(True, title)
                return
            self.browser.settle(20)
        self.check(False, f"{title}: nothing is drawn")

    def calm(self, what):
        self.check(self.browser.errors == [], f"{what}: complaints: {self.browser.errors}")
        outside = [url for url in self.browser.requests if not url.startswith(("file:", "data:", "blob:", "about:"))]
        self.check(outside == [], f"{what}: asks for {outside}")

    # ---- the cases ----

    def example(self):
        b = self.browser
        for theme in ("light", "dark"):
            b.open(self.page, theme)
            b.shot(self.shots, "web-empty-" + theme)
            b.js("document.getElementById('example').click()")
            text = self.answer("the example")
            self.check(text.startswith("planned in "), "the example: " + text)
            self.same(os.path.join(TESTS, "plan", "transformer.csv"), "transformer.csv")
            b.settle(200)
            b.shot(self.shots, "web-example-" + theme)
        self.calm("the example")

    def files(self):
        b = self.browser
        for folder, name in (("plan", "small.csv"), ("plan", "small.json"), ("graph", "unet-2d.ggraph"), (".", "tales-3m-q8_0.gguf")):
            path = os.path.join(TESTS, folder, name)
            with open(path, "rb") as file:
                data = file.read()
            text = self.drop(name, data)
            self.check("drawn after" in text, f"{name}: {text}")
            self.same(path, name)
            if name.endswith(".ggraph"):
                text = self.drop(name + ".gz", gzip.compress(data))
                self.check("drawn after" in text, f"{name}.gz: {text}")
                self.same(path, name)
            if name.endswith(".gguf"):
                text = self.drop(name, data[:len(data) // 2])  # the header is complete, most weights are missing
                self.check("drawn after" in text, f"half of {name}: {text}")
                self.same(path, name)
                b.settle(200)
                b.shot(self.shots, "web-model")
        self.calm("files")

    def chosen(self):
        b = self.browser
        path = os.path.join(TESTS, "plan", "transformer.csv")
        b.js("document.getElementById('status').textContent = 'planning'")
        root = b.call("DOM.getDocument")["root"]["nodeId"]
        node = b.call("DOM.querySelector", nodeId=root, selector="#file")["nodeId"]
        b.call("DOM.setFileInputFiles", nodeId=node, files=[path])
        self.check("drawn after" in self.answer("a chosen file"), "a chosen file is not planned")
        self.same(path, "transformer.csv")

    def faults(self):
        for name, data in (("bad.csv", b"id,lower\n1,2\n"), ("cut.gguf", b"GGUF\3\0\0\0"), ("cut.ggraph", b"ggraph 1\nnode"), ("cut.gz", b"\x1f\x8b\x08")):
            text = self.drop(name, data)
            self.check(text != "" and "drawn" not in text, f"{name}: {text!r}")
            self.check(self.browser.js("document.getElementById('status').className") == "bad", f"{name}: not shown as an error")
            print(f"{name}: {text}")
        self.check("drawn after" in self.drop("small.csv", open(os.path.join(TESTS, "plan", "small.csv"), "rb").read()), "no plan after errors")
        self.calm("faults")

    def narrow(self):
        b = self.browser
        b.call("Emulation.setDeviceMetricsOverride", width=390, height=780, deviceScaleFactor=2, mobile=True)
        b.open(self.page)
        b.shot(self.shots, "web-phone-empty")
        b.js("document.getElementById('example').click()")
        self.answer("the example on a phone")
        self.same(os.path.join(TESTS, "plan", "transformer.csv"), "transformer.csv")
        self.check(b.js("document.documentElement.scrollWidth") <= 390, "the page is wider than a phone")
        b.settle(200)
        b.shot(self.shots, "web-phone")
        b.call("Emulation.clearDeviceMetricsOverride")
        self.calm("a phone")


def main():
    page, berth, browser = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]), sys.argv[3]
    if not os.path.exists(page):
        print(f"web_page: skipped: {page} does not exist; 'make web' writes it")
        return 77
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        tab = Browser(browser, os.path.join(folder, "profile"))
        test = Test(page, berth, folder, tab, sys.argv[4] if len(sys.argv) > 4 else None)
        try:
            for case in (test.example, test.files, test.chosen, test.faults, test.narrow):
                case()
        finally:
            tab.close()
    print(f"{test.n} checks, {test.n_bad} failed")
    return 1 if test.n_bad else 0


if __name__ == "__main__":
    sys.exit(main())
