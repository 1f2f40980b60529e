#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# idle.py BERTH: `berth serve` with 10,000 connections that send nothing or half of a request. Another client is served as before, the
# resident memory stays within the plan, and after the connections are closed their places are free. The exit code is 77 if the limit of
# open files is too low.
import json, re, resource, signal, socket, subprocess, sys, urllib.request

N = 10000
N_MORE = 100  # connections for other clients


def resident(pid):
    with open(f'/proc/{pid}/status') as file:
        return int(re.search(r'VmRSS:\s*(\d+)', file.read())[1]) * 1024


def complete(url):
    body = json.dumps({'prompt': 'a', 'max_tokens': 4}).encode()
    request = urllib.request.Request(f'{url}/v1/completions', body, {'Content-Type': 'application/json'})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)['usage']['completion_tokens']


def metric(url, name):
    with urllib.request.urlopen(f'{url}/metrics', timeout=60) as answer:
        return sum(float(x) for x in re.findall(rf'^{name}(?:{{.*}})? (\S+)$', answer.read().decode(), re.M))


def main():
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if limit < N + 2 * N_MORE:
        print(f'SKIPPED: at most {limit} files can be open')
        return 77
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    with subprocess.Popen([sys.argv[1], 'serve', '--port', '0', '--quiet', '--connections', str(N + N_MORE), '--per-address', str(N + N_MORE),
                           '--timeout', '600'], stdout=subprocess.PIPE, text=True) as server:
        try:
            url = next(line.split()[-1] for line in server.stdout if line.startswith('listening on '))
            address = ('127.0.0.1', int(url.rsplit(':', 1)[1]))
            idle = []
            for i in range(N):
                idle.append(socket.create_connection(address, timeout=60))
                if i % 2 == 1:
                    idle[i].sendall(b'POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{')
            for _ in range(10):
                assert complete(url) == 4
            n_open, planned, taken = metric(url, 'berth_http_connections'), metric(url, 'berth_memory_bytes'), resident(server.pid)
            print(f'{n_open:.0f} connections, resident {taken / 2**20:.0f} MiB, planned {planned / 2**20:.0f} MiB')
            assert n_open > N
            assert taken < planned
            for one in idle:
                one.close()
            while metric(url, 'berth_http_connections') > 1:
                pass
            assert complete(url) == 4
            assert metric(url, 'berth_requests_failed_total') == 0
        finally:
            server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0
    return 0


if __name__ == '__main__':
    sys.exit(main())
