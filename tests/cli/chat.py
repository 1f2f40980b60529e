#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# chat.py BERTH: `berth chat` through a pipe and on a terminal (a pty): turns, commands, Ctrl-C during an answer and at the prompt,
# a resized window, Ctrl-D; with and without a line editor; what the shipped model answers. Runs in the root of the sources.
import fcntl, json, os, pty, re, select, signal, struct, subprocess, sys, tempfile, termios, time

berth = os.path.abspath(sys.argv[1])
model = 'models/tales-q8_0.gguf'
n_bad = 0


def check(ok, what):
    global n_bad
    if not ok:
        print(f'FAILED: {what}')
        n_bad += 1


def piped(lines, *options):
    run = subprocess.run([berth, 'chat', '--template', 'chatml', '--temp', '0', '-n', '8', *options], input='\n'.join(lines) + '\n',
                         capture_output=True, text=True, check=False, timeout=120)
    return run.returncode, run.stdout, run.stderr


def through_a_pipe(tmp):
    code, out, err = piped(['Once upon a time', '/stats', '/nonsense'], '--system', 'Be brief.')
    check(code == 0 and '3 messages' in out and 'template chatml' in out and '/save FILE' in out, f'turns: {code} {out} {err}')
    file = f'{tmp}/saved.json'
    code, out, _ = piped(['Tell me', 'a tale\\', 'of ships', f'/save {file}', 'and more'])
    saved = json.load(open(file))['messages']
    check([m['role'] for m in saved] == ['user', 'assistant'] * 2 and saved[2]['content'] == 'a tale\nof ships', f'saved: {saved}')
    code, out, _ = piped([f'/load {file}', 'and more'])
    check(code == 0 and '4 messages loaded' in out and len(out.split('\n')) == 3, f'loaded: {out}')
    code, out, _ = piped(['/system Be long.', 'Tell me', '/reset', f'/save {file}'], '--system', 'Be brief.')
    saved = json.load(open(file))['messages']
    check(saved == [{'role': 'system', 'content': 'Be long.'}], f'/reset keeps the system message: {saved}')
    with open(file, 'w') as f:
        f.write('{"messages": [{"role": "nobody", "content": ""}]}')
    code, out, err = piped([f'/load {file}', f'/load {tmp}/none', '/stats'])
    check(code == 0 and 'not a conversation' in err and 'none' in err and '0 messages' in out, f'bad files: {code} {out} {err}')
    code, out, err = piped(['a word ' * 100], '-c', '64')
    check(code == 3 and 'free positions; enlarge it with --ctx' in err, f'too long: {code} {err}')
    code, out, err = piped([f'question {i} of a long row of them' for i in range(12)] + ['/stats'], '-c', '96')
    check(code == 0 and len(out.rstrip('\n').split('\n')) >= 13, f'old turns are forgotten: {code} {err}')
    subprocess.run([berth, 'gguf', 'set', model, '--remove', 'tokenizer.chat_template', '-o', f'{tmp}/plain.gguf'], capture_output=True, check=True)
    run = subprocess.run([berth, 'chat', f'{tmp}/plain.gguf'], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    check(run.returncode == 3 and 'it has no chat template; choose a template with --template' in run.stderr, f'no template: {run.stderr}')


# Returns the answers of the shipped model. It has a template, so no option names one.
def told(tmp, *lines):
    file = f'{tmp}/told.json'
    run = subprocess.run([berth, 'chat', '--temp', '0'], input='\n'.join([*lines, f'/save {file}']) + '\n', capture_output=True, text=True,
                         check=False, timeout=300)
    check(run.returncode == 0, f'the shipped model: {run.returncode} {run.stderr}')
    return [m['content'] for m in json.load(open(file))['messages'] if m['role'] == 'assistant'] if os.path.exists(file) else [''] * len(lines)


# Names and plots depend on small differences between kernels; that the answers fit the questions does not.
def shipped_model(tmp):
    tale, short, name, more = told(tmp, 'Tell me a story about a seal.', 'shorter', "What was the seal's name?", 'and then?')
    hero = re.search(r' named (\w+)', tale)
    hero = hero.group(1) if hero else 'nobody'
    check('seal' in tale and len(tale) > 200 and tale.endswith(('.', '!', '"')), f'not a tale about a seal: {tale}')
    check(hero in short and len(short) < len(tale) / 2, f'not shorter, or not about {hero}: {short}')
    check(hero in name and len(name) < 60, f'not the name {hero}: {name}')
    check(hero in more and more not in (tale, short), f'{hero} does not go on: {more}')
    tale, name, short = told(tmp, 'a story about a girl called Anna', 'what was her name?', 'shorter please')
    check(' named Anna' in tale and 'Anna' in name and 'Anna' in short, f'not about Anna: {tale} {name} {short}')
    tale, sums = told(tmp, 'a story about a lighthouse', 'What is 12 plus 30?')
    check('lighthouse' in tale and 'tale' in sums, f'a place, and a question beyond its knowledge: {tale} {sums}')


class Terminal:
    def __init__(self, term, *options):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ['TERM'] = term
            os.execv(berth, [berth, 'chat', '--template', 'chatml', '--temp', '0', *options])
        self.all = b''

    # Reads until the pattern appears after the text that was read before; returns False if it does not.
    def wait(self, pattern, seconds=60):
        start, end = len(self.all), time.time() + seconds
        while not re.search(pattern, self.all[start:]):
            if time.time() > end or not select.select([self.fd], [], [], 1)[0] and time.time() > end:
                return False
            try:
                got = os.read(self.fd, 4096) if select.select([self.fd], [], [], 0.1)[0] else b''
            except OSError:
                return bool(re.search(pattern, self.all[start:]))
            self.all += got
        return True

    def send(self, data):
        os.write(self.fd, data)

    def size(self, rows, columns):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack('HHHH', rows, columns, 0, 0))
        os.kill(self.pid, signal.SIGWINCH)

    # Sends Ctrl-D on an empty line until the program ends. If it arrives between the prompt and the line editor's start, the editor
    # gets a NUL, which quotes the next key.
    def end(self):
        end, sent = time.time() + 60, 0
        while time.time() < end:
            if time.time() > sent + 1:
                keys = b'\x04' if sent == 0 else b'\x15\x04'
                sent = time.time()
                try:
                    self.send(keys)
                except OSError:
                    pass
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
            self.wait(b'never', 0.1)
            time.sleep(0.02)
        os.kill(self.pid, signal.SIGKILL)
        return None


# Sequences with which a line editor moves the cursor; any other control sequence is an error.
def is_clean(out):
    plain = re.sub(rb'\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]|\x1b\([B0]', b'', out)
    return all(c in b'\r\n\t\b\x07' or c >= 0x20 for c in plain)


def on_a_terminal(term):
    t = Terminal(term, '-c', '2048')
    check(t.wait(rb'> '), f'{term}: no prompt: {t.all}')
    t.send(b'\x03')  # at the prompt
    time.sleep(0.3)
    t.send(b'\n')
    for _ in range(5):  # an answer may end before Ctrl-C arrives
        t.send(b'/reset\nTell me a long tale\n')
        check(t.wait(rb'tale\r?\n(.|\n)*[.a-z]{3}'), f'{term}: no answer: {t.all}')
        t.size(20, 40)
        start = len(t.all)
        t.send(b'\x03')
        t.wait(rb'\.\.\.\r?\n(.|\n)*> ', 10)
        is_stopped = re.search(rb' \.\.\.\r?\n', t.all[start:]) is not None
        if is_stopped:
            break
    check(is_stopped, f'{term}: Ctrl-C does not stop the answer: {t.all}')
    t.send(b'/stats\n')
    check(t.wait(rb'2 messages(.|\n)*> '), f'{term}: the stopped answer is not kept: {t.all}')
    code = t.end()
    check(code == 0, f'{term}: Ctrl-D: exit code {code}')
    check(is_clean(t.all), f'{term}: garbage: {t.all}')


with tempfile.TemporaryDirectory() as folder:
    through_a_pipe(folder)
    shipped_model(folder)
on_a_terminal('dumb')
on_a_terminal('xterm')
print('chat:', 'all fine' if n_bad == 0 else f'{n_bad} failed')
sys.exit(n_bad > 0)
