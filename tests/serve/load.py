#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# load.py BERTH [MINUTES [CLIENTS [OPTION...]]]: `berth serve` under load (default: one hour, 24 clients). OPTION: more options of the
# server, such as a model. The clients send chats, completions,
# embeddings, schemas, streams, wrong bodies and garbage, and some leave in the middle of an answer. Prints the resident memory at the
# start, every minute and at the end, the numbers of answers and failures, and at the end the median and the 99th percentile of the time
# to the first token and of the time between two tokens of the streams, in ms. The exit code is 1 if an answer is wrong, if the server
# fails a request, if a sequence or connection remains, or if the memory grows by more than 4 MiB after the first tenth of the time, or
# above the plan.
import collections, http.client, json, random, re, signal, subprocess, sys, threading, time

GROWTH = 4 << 20  # bytes
TYPE = {'Content-Type': 'application/json'}


class Load:
    def __init__(self, berth, seconds, n_clients, options):
        self.server = subprocess.Popen([berth, 'serve', '--port', '0', '--quiet', '--parallel', '8', '--queue', '16', '--template', 'chatml',
                                        '--connections', '128', '--per-address', '128', *options], stdout=subprocess.PIPE, text=True)
        self.port = next(int(line.rsplit(':', 1)[1]) for line in self.server.stdout if line.startswith('listening on '))
        self.seconds, self.n_clients = seconds, n_clients
        self.end = time.monotonic() + seconds
        self.lock = threading.Lock()
        self.counts = collections.Counter()
        self.faults = []
        self.times = {'first token': [], 'between tokens': []}  # seconds, of streams

    def count(self, what, fault=None):
        with self.lock:
            self.counts[what] += 1
            if fault is not None:
                self.faults.append(f'{what}: {fault}')

    def connect(self):
        return http.client.HTTPConnection('127.0.0.1', self.port, timeout=120)

    # Sends a body, and checks the status and a part of the answer. 429 is an answer, too: the queue is full.
    def ask(self, what, path, body, status, part):
        connection = self.connect()
        connection.request('POST', path, body if isinstance(body, bytes) else json.dumps(body), TYPE)
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        if answer.status == 429:
            self.count('refused', None if answer.getheader('Retry-After') else 'no Retry-After')
            time.sleep(0.25)  # most answers would be refusals otherwise
        elif answer.status != status or part not in text:
            self.count(what, f'status {answer.status}: {text[:200]}')
        else:
            self.count(what)

    # Sends the body of a stream, and measures when its texts arrive.
    def stream(self, body):
        connection = self.connect()
        last = time.monotonic()
        connection.request('POST', '/v1/completions', json.dumps({**body, 'stream': True}), TYPE)
        answer = connection.getresponse()
        times = []
        line = b'-'
        is_done = False
        while answer.status == 200 and line != b'':
            line = answer.readline()
            is_done = is_done or line == b'data: [DONE]\n'
            if line.startswith(b'data: {') and json.loads(line[6:])['choices'][0]['text'] != '':
                now = time.monotonic()
                times.append(now - last)
                last = now
        rest = answer.read().decode()
        connection.close()
        if answer.status == 429:
            self.count('refused', None if answer.getheader('Retry-After') else 'no Retry-After')
            time.sleep(0.25)
        elif not is_done:
            self.count('stream', f'status {answer.status}: {rest[:200]}')
        else:
            self.count('stream')
            with self.lock:
                self.times['first token'] += times[:1]
                self.times['between tokens'] += times[1:]

    # Reads the beginning of a stream and leaves.
    def leave(self, rng):
        connection = self.connect()
        connection.request('POST', '/v1/completions', json.dumps({'prompt': 'The', 'max_tokens': 200, 'stream': True}), TYPE)
        if rng.random() < 0.5:
            connection.getresponse().read(rng.randrange(1, 400))
        connection.close()
        self.count('left')

    def garbage(self, rng):
        connection = self.connect()
        connection.connect()
        connection.sock.sendall(rng.randbytes(rng.randrange(1, 200)) + b'\r\n\r\n')
        connection.close()
        self.count('garbage')

    def client(self, seed):
        rng = random.Random(seed)
        chat = {'messages': [{'role': 'user', 'content': 'Tell me about a ship.'}]}
        schema = {'type': 'json_schema', 'json_schema': {'name': 'x', 'schema': {'enum': ['yes', 'no']}}}
        while time.monotonic() < self.end:
            n = rng.randrange(1, 100)
            prompt = ' '.join(rng.choice(['a', 'ship', 'the', 'harbour', 'boy']) for _ in range(rng.randrange(1, 60)))
            kind = rng.randrange(9)
            try:
                if kind == 0:
                    self.ask('chat', '/v1/chat/completions', {**chat, 'max_tokens': n}, 200, '"finish_reason"')
                elif kind == 1:
                    self.ask('completion', '/v1/completions', {'prompt': prompt, 'max_tokens': n, 'n': rng.randrange(1, 4)}, 200, '"usage"')
                elif kind == 2:
                    self.stream({'prompt': prompt, 'max_tokens': n, 'logprobs': 2})
                elif kind == 3:
                    self.ask('embedding', '/v1/embeddings', {'input': [prompt, 'b']}, 200, '"index": 1')
                elif kind == 4:
                    self.ask('schema', '/v1/chat/completions', {**chat, 'response_format': schema}, 200, '"content": "\\"')
                elif kind == 5:
                    self.ask('wrong', '/v1/chat/completions', {**chat, 'n': -1}, 400, '"error"')
                elif kind == 6:
                    self.ask('no json', '/v1/completions', rng.randbytes(n), 400, '"error"')
                elif kind == 7:
                    self.leave(rng)
                else:
                    self.garbage(rng)
            except (OSError, http.client.HTTPException, UnicodeDecodeError) as error:
                self.count('lost', repr(error))

    def resident(self):
        with open(f'/proc/{self.server.pid}/status') as file:
            return int(re.search(r'VmRSS:\s*(\d+)', file.read())[1]) * 1024

    def metric(self, name):
        connection = self.connect()
        connection.request('GET', '/metrics')
        text = connection.getresponse().read().decode()
        connection.close()
        return sum(float(x) for x in re.findall(rf'^{name}(?:{{.*}})? (\S+)$', text, re.M))

    def report(self, when):
        size = self.resident()
        with self.lock:
            n_faults = len(self.faults)
            rows = ', '.join(f'{n} {what}' for what, n in sorted(self.counts.items()))
        print(f'{when:>9} resident {size / 2**20:7.2f} MiB, {n_faults} failures; {rows}', flush=True)
        return size

    # Waits until all clients that left are noticed.
    def settle(self):
        until = time.monotonic() + 60
        while time.monotonic() < until:
            if self.metric('berth_requests_running') == 0 and self.metric('berth_http_connections') <= 1:
                return
            time.sleep(0.1)
        self.faults.append(f'{self.metric("berth_requests_running"):.0f} sequences and {self.metric("berth_http_connections"):.0f} connections remain')

    def run(self):
        begin = time.monotonic()
        planned = self.metric('berth_memory_bytes')
        self.report('start')
        clients = [threading.Thread(target=self.client, args=(i,)) for i in range(self.n_clients)]
        for one in clients:
            one.start()
        first = None
        while time.monotonic() < self.end:
            time.sleep(max(0, min(60, self.end - time.monotonic())))
            size = self.report(f'{(time.monotonic() - begin) / 60:.1f} min')
            if first is None and time.monotonic() - begin >= self.seconds / 10:
                first = size
        for one in clients:
            one.join()
        self.settle()
        last = self.report('end')
        for what, times in self.times.items():
            times.sort()
            p50, p99 = (1000 * times[(len(times) - 1) * percent // 100] if times else 0 for percent in (50, 99))
            print(f'{what}: {len(times)} times, median {p50:.1f} ms, 99th percentile {p99:.1f} ms')
        n_first = self.metric('berth_first_token_seconds_count')
        if n_first < len(self.times['first token']):
            self.faults.append(f'/metrics counts {n_first:.0f} first tokens, {len(self.times["first token"])} streams had one')
        if last > first + GROWTH:
            self.faults.append(f'the memory has grown from {first} to {last} bytes')
        if last > planned:
            self.faults.append(f'{last} bytes are resident, {planned:.0f} are planned')
        if self.metric('berth_requests_failed_total') > 0:
            self.faults.append('the server has failed a request')
        self.server.send_signal(signal.SIGTERM)
        if self.server.wait(60) != 0:
            self.faults.append(f'exit code {self.server.returncode}')
        n_answers = sum(n for what, n in self.counts.items() if what not in ('left', 'garbage', 'lost'))
        print(f'{n_answers} answers, {len(self.faults)} failures, planned {planned / 2**20:.2f} MiB')
        print('\n'.join(self.faults[:20]))
        return len(self.faults) > 0


def main():
    minutes = float(sys.argv[2]) if len(sys.argv) > 2 else 60
    load = Load(sys.argv[1], 60 * minutes, int(sys.argv[3]) if len(sys.argv) > 3 else 24, sys.argv[4:])
    try:
        return load.run()
    finally:
        load.server.kill()


if __name__ == '__main__':
    sys.exit(main())
