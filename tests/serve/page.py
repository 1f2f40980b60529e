#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# page.py BERTH CHROMIUM [SHOTS]: the chat page of `berth serve` in a browser, with the shipped model: it types, streams, stops, keeps
# conversations and settings, shows errors, asks for the API key, works in two tabs at the same time, and fits on a phone.
# Screenshots go to the folder SHOTS, if given. The exit code is 77 if there is no browser.
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli"))
from map_page import Browser  # noqa: E402

WAIT_S = 60  # for an answer, on a busy machine
KEY = "key-of-the-test"
MODEL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "models", "tales-q8_0.gguf")


class Server:
    """`berth serve` on a free port."""

    def __init__(self, berth, *options):
        self.process = subprocess.Popen([berth, "serve", "--port", "0", "--quiet", *options], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        for line in self.process.stdout:
            found = re.match(r"listening on (\S+)", line)
            if found:
                self.url = found.group(1)
                return
        raise RuntimeError("berth serve does not start")

    def metric(self, name):
        with urllib.request.urlopen(self.url + "/metrics", timeout=20) as response:
            return float(re.search(rf"^berth_{name} (\S+)$", response.read().decode(), re.M).group(1))

    def close(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


class Tabs(Browser):
    """A browser whose tabs share their storage; use() selects the tab that the other functions control."""

    def tab(self, url):
        self.session = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")
        self.go(url)
        return self.session

    def use(self, session):
        self.session = session
        self.call("Page.bringToFront")

    def go(self, url):
        self.loaded = False
        self.call("Page.navigate", url=url)
        while not self.loaded:
            self.note(self.message())
        self.settle()

    def theme(self, name):
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def type(self, text):
        self.js("document.getElementById('text').focus()")
        self.call("Input.insertText", text=text)

    def press(self, key, modifiers=0):
        code = {"Enter": 13, "Escape": 27, "Tab": 9}[key]
        text = {"text": "\r"} if key == "Enter" else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, code=key, windowsVirtualKeyCode=code, modifiers=modifiers, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, code=key, windowsVirtualKeyCode=code, modifiers=modifiers)
        self.settle(20)

    def click_on(self, selector):
        self.js(f"document.querySelector({json.dumps(selector)}).click()")
        self.settle(20)

    def text(self, selector):
        return self.js(f"(document.querySelector({json.dumps(selector)}) || {{}}).innerText || ''")


# What the page gets instead of the server's answer. It can be read at once, without a task of the browser.
STUB = """(() => { const real = window.fetch; window.fetch = (url, options) => {
  if (!String(url).includes("completions")) { return real(url, options); }
  window.fetch = real;
  const text = %s, answer = new Response(text, {status: %d, headers: {"Retry-After": "7"}});
  answer.json = () => Promise.resolve(JSON.parse(text));
  return Promise.resolve(answer); }; })()"""
IDLE = "document.getElementById('stop').hidden"
TRIES = 25  # for events that depend on random answers
LAST = "#log article:last-child"


class Test:
    def __init__(self, berth, browser, shots):
        self.berth, self.browser, self.shots, self.n, self.n_bad = berth, browser, shots, 0, 0

    def check(self, ok, what):
        self.n += 1
        if not ok:
            self.n_bad += 1
            print("FAILED: " + what)

    def soon(self, condition, what):
        end = time.monotonic() + WAIT_S
        while time.monotonic() < end:
            if condition() if callable(condition) else self.browser.js(condition):
                self.check(True, what)
                return
            self.browser.settle(20)
        self.check(False, f"{what}; the page shows: {self.browser.text('body')!r}")

    def calm(self, what, *allowed):
        """No error in the console but those of responses that the test causes, and no request to another server."""
        b = self.browser
        errors = [e for e in b.errors if not any(part in e for part in allowed)]
        self.check(errors == [], f"{what}: complaints: {errors}")
        outside = [url for url in b.requests if not url.startswith((self.server.url, "about:"))]
        self.check(outside == [], f"{what}: asks for {outside}")
        b.errors, b.requests = [], []

    def send(self, text):
        self.browser.type(text)
        self.browser.press("Enter")

    def answered(self, text, what):
        self.send(text)
        self.soon(f"{IDLE} && document.querySelectorAll('#log .assistant').length > 0", what + " does not end")
        return self.browser.text(LAST + " .body")

    def regenerate(self):
        self.browser.click_on("[data-action=regenerate]")
        self.soon(f"{IDLE} && document.querySelectorAll('#log article').length === 2", "a regenerated answer does not end")

    def settings(self, **values):
        b = self.browser
        b.click_on("#settings-open")
        for name, value in values.items():
            b.js(f"document.querySelector('#settings [name={name}]').value = {json.dumps(value)}")
        b.click_on("#settings button.main")
        self.check(b.js("!document.querySelector('dialog[open]')"), f"the settings {values} are refused")

    # ---- the cases ----

    def stream(self):
        b = self.browser
        b.js("""window.lengths = []; new MutationObserver(() => {
            const p = document.querySelector('#log .assistant .body'); if (p) { window.lengths.push(p.textContent.length); }
        }).observe(document.getElementById('log'), {childList: true, subtree: true})""")
        b.type("Once upon a time")
        b.press("Enter", modifiers=8)  # Shift
        self.check(b.js("document.getElementById('text').value") == "Once upon a time\n", "Shift+Enter does not begin a new line")
        b.press("Enter")
        self.soon(f"{IDLE} && document.querySelectorAll('#log .assistant').length === 1", "the first answer does not end")
        for _ in range(TRIES):  # a random answer may be short
            if len(set(b.js("window.lengths"))) > 3 and len(b.text(LAST + " .body")) > 20:
                break
            b.js("window.lengths.length = 0")
            self.regenerate()
        self.check(len(set(b.js("window.lengths"))) > 3, f"the answer does not stream: lengths {b.js('window.lengths')}")
        self.check(b.text(".user .body") == "Once upon a time", f"the question is {b.text('.user .body')!r}")
        self.check(len(b.text(LAST + " .body")) > 20, f"the answer is {b.text(LAST)!r}")
        self.check(re.search(r"\d+ tokens, [\d.]+/s", b.text(LAST + " .foot")), f"no speed in {b.text(LAST + ' .foot')!r}")
        self.check(b.text("#list li") .startswith("Once upon a time"), f"the list has {b.text('#list')!r}")
        self.soon("document.getElementById('figures').innerText.includes('0 running, 0 waiting')", "the queue is not shown")
        self.check("tokens" in b.text("#figures") and "MiB" in b.text("#figures"), f"the memory is not shown: {b.text('#figures')!r}")
        before = b.text(LAST + " .body")
        for _ in range(TRIES):
            self.regenerate()
            if b.text(LAST + " .body") != before:
                break
        self.check(b.text(LAST + " .body") != before, "a regenerated answer without a seed is the same")
        b.js("navigator.clipboard.writeText = async text => { window.copied = text; }")
        b.click_on(LAST + " [data-action=copy]")
        self.check(b.js("window.copied").strip() == b.text(LAST + " .body").strip(), "copies something else")
        self.calm("streaming")

    # Escape and the button stop the answer at its first text; the server cancels the request and frees its pages.
    def stop(self):
        b = self.browser
        for how in ("document.getElementById('stop').click()", "document.body.dispatchEvent(new KeyboardEvent('keydown', {key: 'Escape', bubbles: true}))"):
            n = self.server.metric("requests_cancelled_total")
            b.click_on("#new")
            for _ in range(TRIES):  # a short answer may end before it is stopped
                b.js("""new MutationObserver((_, observer) => {
                    const p = document.querySelector('#log .running .body p:not(.wait)');
                    if (p && p.textContent.length > 0) { observer.disconnect(); %s; }
                }).observe(document.getElementById('log'), {childList: true, subtree: true})""" % how)
                self.answered("Tell me a long story about a ship.", "a stopped answer")
                if "stopped" in b.text(LAST + " .foot"):
                    break
            self.check("stopped" in b.text(LAST + " .foot"), f"the answer is not stopped: {b.text(LAST)!r}")
            self.soon(lambda: self.server.metric("requests_cancelled_total") > n, "the server does not cancel the request")
        self.soon(lambda: self.server.metric("requests_running") == 0 and self.server.metric("pool_promised_peak_tokens") == 0, "the pages are not freed")
        self.check(b.js("document.activeElement.id") == "text", "the focus is not in the text field")
        self.calm("stopping", "400 (Bad Request)")  # further attempts may fill the context

    def conversations(self):
        b = self.browser
        n = b.js("document.querySelectorAll('#list li').length")
        self.check(n == 3, f"{n} conversations, not 3")
        b.click_on("#list li:nth-child(3) .open")
        self.check(b.text(".user .body") == "Once upon a time", "the first conversation does not open")
        b.click_on("#list li:nth-child(3) [data-action=rename]")
        b.js("document.querySelector('#rename [name=title]').value = 'A <b>name</b>'")
        b.click_on("#rename button.main")
        self.soon("document.getElementById('title').textContent === 'A <b>name</b>'", "rename has no effect")
        b.click_on("#list li:nth-child(1) [data-action=remove]")
        b.click_on("#remove button[value=cancel]")
        self.check(b.js("document.querySelectorAll('#list li').length") == 3, "a cancelled deletion deletes")
        b.click_on("#list li:nth-child(1) [data-action=remove]")
        b.click_on("#remove button.main")
        self.soon("document.querySelectorAll('#list li').length === 2", "a conversation is not deleted")
        b.go(self.server.url)
        self.check(b.text("#title") == "A <b>name</b>" and b.js("document.querySelectorAll('#log article').length") == 2, "a reload loses the conversation")
        self.calm("conversations")

    def kept_settings(self):
        b = self.browser
        b.click_on("#new")
        self.settings(seed="7", max_tokens="12", temperature="0.5", top_p="0.9", system="You are a sailor.")
        b.js("window.bodies = []; const real = window.fetch; window.fetch = (u, o) => { if (o && o.body) { window.bodies.push(JSON.parse(o.body)); } return real(u, o); }")
        first = self.answered("Tell me about the sea.", "an answer with settings")
        b.click_on("[data-action=regenerate]")
        self.soon(f"{IDLE} && window.bodies.length === 2", "the same request does not end")
        self.check(b.text(LAST + " .body") == first, f"the same seed: {first!r} and {b.text(LAST + ' .body')!r}")
        body = b.js("window.bodies[0]")
        want = {"seed": 7, "max_tokens": 12, "temperature": 0.5, "top_p": 0.9}
        self.check({k: body.get(k) for k in want} == want and body["messages"][0] == {"role": "system", "content": "You are a sailor."}, f"the request is {body}")
        b.go(self.server.url)
        b.click_on("#settings-open")
        self.check(b.js("document.querySelector('#settings [name=seed]').value") == "7", "a reload loses the settings")
        b.shot(self.shots, "settings")
        b.press("Escape")
        self.check(b.js("!document.querySelector('dialog[open]')"), "Escape does not close the settings")
        self.settings(seed="", max_tokens="", temperature="", top_p="", system="")
        self.calm("settings")

    def errors(self):
        b = self.browser
        b.click_on("#new")
        self.settings(max_tokens="100000")
        text = self.answered("Hello", "a refused request")
        self.check("1024" in text and "status 400, context_length_exceeded" in text, f"the error is {text!r}")
        b.shot(self.shots, "error")
        self.settings(max_tokens="8")
        b.click_on("[data-action=regenerate]")
        self.soon(f"{IDLE} && !document.querySelector('.error')", "Try again has no effect")
        busy = json.dumps({"error": {"message": "the queue is full", "type": "rate_limit_error", "param": None, "code": "rate_limit_exceeded"}})
        b.js(STUB % (json.dumps(busy), 429))
        text = self.answered("Hello", "a busy server")
        self.check("The server is busy: the queue is full" in text and "try again in 7 s" in text, f"429 shows {text!r}")
        # The text of an answer is never HTML, and a stream may end early.
        event = "data: " + json.dumps({"choices": [{"delta": {"content": "<img src=x onerror=alert(1)>\n```c\nint i;\n```\nend"}}]}) + "\n\n"
        b.js(STUB % (json.dumps(event), 200))
        text = self.answered("Hello", "a stream that ends early")
        self.check("<img src=x" in text and b.js("!document.querySelector('#log img')"), f"HTML in an answer: {text!r}")
        self.check(b.text(LAST + " pre").strip() == "int i;", f"code is shown as {b.text(LAST + ' pre')!r}")
        self.check("ended before the answer was complete" in text, f"no error in {text!r}")
        self.settings(max_tokens="")
        # A conversation that is longer than the context loses its oldest messages.
        long = "The ship went to the sea and the sun was warm. " * 50
        b.js("window.sent = 0; const real = window.fetch; window.fetch = (u, o) => { window.sent += o && o.body ? 1 : 0; return real(u, o); }")
        self.answered(long, "a long message")
        self.answered(long, "a second long message")
        self.check("did not fit into the context" in b.text(LAST + " .foot"), f"no note in {b.text(LAST)!r}")
        self.calm("errors", "400 (Bad Request)")

    def load(self):
        """Other clients use the server: the page shows the cache and the queue, and why a request waits."""
        b = self.browser
        is_over = threading.Event()
        body = json.dumps({"prompt": "The", "max_tokens": 240, "logit_bias": {"2": -100, "4": -100}}).encode()

        def client():
            while not is_over.is_set():
                request = urllib.request.Request(self.server.url + "/v1/completions", body, {"Content-Type": "application/json"})
                urllib.request.urlopen(request, timeout=WAIT_S).read()

        threads = [threading.Thread(target=client) for _ in range(8)]
        for thread in threads:
            thread.start()
        b.click_on("#list li:last-child .open")
        self.soon("/[1-9] running, [1-9] waiting/.test(document.getElementById('figures').innerText) && !document.getElementById('why').hidden"
                  " && parseFloat(document.getElementById('used').style.width) > 0", "the load is not shown")
        self.send("Hello")
        b.settle(400)
        b.shot(self.shots, "load")
        is_over.set()
        for thread in threads:
            thread.join()
        self.soon(IDLE, "an answer under load does not end")
        self.calm("load", "400 (Bad Request)")  # the context is full, so the oldest messages are left out

    def two_tabs(self):
        b = self.browser
        first = b.session
        b.click_on("#new")
        second = b.tab(self.server.url)
        self.check(b.text("#title") == "New chat", "a new tab does not begin a new conversation")
        for session, name in ((first, "red"), (second, "blue")):
            b.use(session)
            self.send(f"Tell me about a {name} boat.")
        for session, name in ((first, "red"), (second, "blue")):
            b.use(session)
            self.soon(f"{IDLE} && document.querySelectorAll('#log article').length === 2", f"the {name} tab does not end")
            self.check(b.text(".user .body") == f"Tell me about a {name} boat.", f"the {name} tab has {b.text('.user .body')!r}")
            self.soon("['red', 'blue'].every(x => document.getElementById('list').innerText.includes(x))", f"the list of the {name} tab lacks a conversation")
        for _ in range(TRIES):  # a short answer may end before the other one begins
            for session in (first, second):
                b.use(session)
                b.click_on("[data-action=regenerate]")
            both = self.server.metric("requests_running")
            for session in (first, second):
                b.use(session)
                self.soon(IDLE, "a regenerated answer does not end")
            if both == 2:
                break
        self.check(both == 2, "the answers of two tabs do not run at the same time")
        b.click_on("#list li:nth-child(1) [data-action=remove]")
        b.click_on("#remove button.main")
        b.use(first)
        self.soon("!['red', 'blue'].every(x => document.getElementById('list').innerText.includes(x))", "a deletion does not reach the other tab")
        b.use(second)
        b.call("Page.close")
        b.use(first)
        self.calm("two tabs")

    def full(self):
        """Beyond the limit of the storage, the oldest conversations are deleted, and the page says so."""
        b = self.browser
        b.js("for (let i = 0; i < 250; i++) { localStorage.setItem('berth.chat.old' + i, JSON.stringify({id: 'old' + i, title: 'Old ' + i, time: i, messages: []})); }"
             " localStorage.setItem('berth.chat.broken', '{'); localStorage.setItem('berth.settings', '[1]')")
        b.go(self.server.url)
        b.click_on("#new")
        self.answered("Hello", "with a full storage")
        n = b.js("Object.keys(localStorage).filter(k => k.startsWith('berth.chat.old')).length")
        self.check(n < 200 and "were deleted" in b.text("#notice"), f"{n} old conversations, notice {b.text('#notice')!r}")
        b.js("Object.keys(localStorage).filter(k => /old|broken/.test(k)).forEach(k => localStorage.removeItem(k))")
        b.go(self.server.url)
        self.calm("a full storage")

    def looks(self):
        b = self.browser
        b.click_on("#new")
        b.click_on("#list li:last-child .open")
        for theme, ground in (("light", "rgb(255, 255, 255)"), ("dark", "rgb(18, 22, 27)")):
            b.theme(theme)
            b.settle(400)
            self.check(b.js("getComputedStyle(document.body).backgroundColor") == ground, f"{theme} is not followed")
            b.shot(self.shots, theme)
        unnamed = b.js("""[...document.querySelectorAll('button, input, textarea')].filter(e => !(e.ariaLabel || e.textContent.trim() || e.labels?.length)).map(e => e.outerHTML)""")
        self.check(unnamed == [], f"without a label: {unnamed}")
        b.theme("light")

    def phone(self):
        b = self.browser
        b.call("Emulation.setDeviceMetricsOverride", width=390, height=780, deviceScaleFactor=2, mobile=True)
        b.settle(300)
        self.check(b.js("document.documentElement.scrollWidth") <= 390, "phone: the page is wider than the screen")
        self.check(b.js("document.getElementById('side').getBoundingClientRect().right") <= 0, "phone: the drawer is open")
        b.shot(self.shots, "phone")
        b.click_on("#menu")
        b.settle(400)
        self.check(b.js("document.getElementById('side').getBoundingClientRect().left") == 0, "phone: the drawer does not open")
        b.shot(self.shots, "phone-drawer")
        b.press("Escape")
        b.settle(400)
        self.check(b.js("document.getElementById('side').getBoundingClientRect().right") <= 0, "phone: Escape does not close the drawer")
        b.click_on("#menu")
        b.click_on("#new")
        b.settle(400)
        self.check(b.js("!document.body.classList.contains('drawer')"), "phone: a new chat does not close the drawer")
        self.answered("Hello", "phone: an answer")
        b.click_on("#settings-open")
        b.settle(100)
        self.check(b.js("document.getElementById('settings').getBoundingClientRect().right") <= 390, "phone: the settings are too wide")
        b.shot(self.shots, "phone-settings")
        b.press("Escape")
        self.calm("phone")
        b.call("Emulation.clearDeviceMetricsOverride")

    def gone(self):
        b = self.browser
        self.check(self.server.close() == 0, "the server fails at its end")
        self.soon("document.getElementById('state').textContent === 'does not answer'", "a dead server is not shown")
        b.click_on("#new")
        text = self.answered("Hello", "without a server")
        self.check("The server does not answer." in text, f"without a server: {text!r}")
        self.calm("a dead server", "ERR_CONNECTION_REFUSED", "ERR_EMPTY_RESPONSE", "ERR_CONNECTION_RESET", "503")

    def key(self, folder):
        b = self.browser
        path = os.path.join(folder, "keys")
        with open(path, "w") as file:
            file.write(KEY + "\n")
        self.server = Server(self.berth, "--template", "chatml", "--api-key-file", path)
        b.go(self.server.url)
        b.requests = []
        self.soon("!document.getElementById('give-key').hidden", "no button for the key")
        for key in ("wrong", KEY):
            if key == "wrong":
                self.send("Hello")
            self.soon("document.getElementById('key').open", "401 does not ask for the key")
            b.shot(self.shots, "key")
            b.js(f"document.querySelector('#key input').value = {json.dumps(key)}")
            if key == "wrong":  # refused before the browser tells the page that the dialog has closed
                b.js(STUB % (json.dumps(json.dumps({"error": {"message": "wrong API key"}})), 401))
            b.click_on("#key button.main")
        self.soon(f"{IDLE} && !document.querySelector('.error') && document.querySelectorAll('#log article').length === 2", "no answer with the key")
        self.soon("document.getElementById('figures').innerText.includes('running')", "no figures with the key")
        self.check(b.js("!JSON.stringify(localStorage).includes('%s') && JSON.stringify(sessionStorage).includes('%s')" % (KEY, KEY)), "the key is kept elsewhere")
        self.calm("keys", "401 (Unauthorized)")
        self.server.close()

    def no_template(self, folder):
        """A model without a chat template continues the text."""
        b = self.browser
        plain = os.path.join(folder, "plain.gguf")
        subprocess.run([self.berth, "gguf", "set", MODEL, "--remove", "tokenizer.chat_template", "-o", plain], check=True, stdout=subprocess.DEVNULL)
        self.server = Server(self.berth, plain)
        b.go(self.server.url)
        b.requests = []
        text = self.answered("Once upon a time", "without a template")
        for _ in range(TRIES):  # a random answer may be short
            if len(text) > 20:
                break
            self.regenerate()
            text = self.browser.text(LAST + " .body")
        self.check(len(text) > 20 and "no_chat_template" not in text, f"without a template: {text!r}")
        self.calm("no template", "400 (Bad Request)")
        self.server.close()

    def run(self, folder):
        self.server = Server(self.berth, "--parallel", "4")
        try:
            self.browser.theme("light")
            self.browser.go(self.server.url)
            self.browser.shot(self.shots, "empty")
            for case in (self.stream, self.stop, self.conversations, self.kept_settings, self.errors, self.load, self.two_tabs, self.full, self.looks, self.phone, self.gone):
                case()
            self.key(folder)
            self.no_template(folder)
        finally:
            self.server.close()


def main():
    if len(sys.argv) < 3 or not os.access(sys.argv[2], os.X_OK):
        print("SKIPPED: there is no Chromium")
        return 77
    shots = sys.argv[3] if len(sys.argv) > 3 else None
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        browser = Tabs(sys.argv[2], os.path.join(folder, "profile"))
        test = Test(os.path.abspath(sys.argv[1]), browser, shots)
        try:
            test.run(folder)
        finally:
            browser.close()
    print(f"{test.n} checks, {test.n_bad} failed")
    return 1 if test.n_bad else 0


if __name__ == "__main__":
    sys.exit(main())
