#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# grammar.py BERTH [CASE...]: grammars and JSON schemas that try to use unbounded memory or time. `berth run` must accept each file
# or refuse it with a message, within MAX_RSS bytes of memory and MAX_CPU seconds of processor time. Both limits are many times the
# actual need. Matchers that list all stacks, expand repetitions, follow references recursively, or search names linearly exceed
# them. Runs in the root of the sources.
import json, os, resource, signal, subprocess, sys, tempfile, time

berth = os.path.abspath(sys.argv[1])
MAX_RSS, MAX_CPU = 1 << 30, 20
limits = {resource.RLIMIT_CPU: MAX_CPU, resource.RLIMIT_AS: 4 << 30}


def limit():
    for which, n in limits.items():
        resource.setrlimit(which, (n, n))


def cases():
    size = 1200000
    yield 'two ends', '--grammar', 'root ::= "a" root "x" | "a" root "y"', 0
    yield 'many ends', '--grammar', 'root ::= "a" root ' + ' | "a" root '.join(f'"{c}"' for c in 'bcdefghij'), 0
    yield 'every split', '--grammar', 'root ::= "a" root root | "a"', 0
    yield 'nested lists', '--json-schema', json.dumps({'anyOf': [
        {'type': 'array', 'items': {'$ref': '#'}, 'minItems': 1}, {'type': 'array', 'items': {'$ref': '#'}, 'minItems': 2}]}), 0
    yield 'repetitions', '--grammar', 'root ::= "a" ' + ' '.join(['"x"{0,100000}'] * 400), 0
    yield 'long repetitions', '--grammar', 'root ::= "a" ' + ' '.join(['"x"{100000}'] * 400), 0
    n = size // 4
    yield 'class', '--grammar', 'root ::= [' + ''.join(chr(0x100000 - 2 * i) for i in range(n)) + ']', 0
    n = size // 20
    yield 'names', '--grammar', 'root ::= r0\n' + '\n'.join(f'r{i} ::= "x" r{i + 1}' for i in range(n)) + f'\nr{n} ::= "y"\n', 0
    yield 'chain', '--grammar', 'root ::= r0 "z"\n' + '\n'.join(f'r{i} ::= r{i + 1}' for i in range(n)) + f'\nr{n} ::= "y"?\n', 0
    n = size // 30
    yield 'references', '--json-schema', json.dumps({'$ref': '#/$defs/d0', '$defs': {
        **{f'd{i}': {'$ref': f'#/$defs/d{i + 1}'} for i in range(n)}, f'd{n}': {'type': 'null'}}}), 0
    names = [f'p{i}' for i in range(n)]
    yield 'required', '--json-schema', json.dumps({'type': 'object', 'properties': {n: {} for n in names}, 'required': names}), 0
    yield 'optional', '--json-schema', json.dumps({'type': 'object', 'properties': {n: {'type': 'null'} for n in names[:5000]}}), 0
    yield 'empty reference', '--json-schema', '{"$ref": ""}', 3
    yield 'no alternatives', '--json-schema', '{"type": []}', 3
    yield 'no place', '--json-schema', '{"$ref": "#/$defs/none"}', 3
    yield 'itself', '--json-schema', '{"$ref": "#"}', 0


# SIGTERM while a large file is processed. Times are processor times, which other programs on the machine do not change.
def stop(tmp):
    n_bad = 0
    n = 400000
    files = {'--grammar': 'root ::= r0\n' + '\n'.join(f'r{i} ::= "x" r{i + 1} | [a-z0-9]' for i in range(n)) + f'\nr{n} ::= "y"\n',
             '--json-schema': json.dumps({'type': 'object', 'properties': {f'p{i}': {'type': 'string'} for i in range(n)}})}
    for option, text in files.items():
        with open(f'{tmp}/file', 'w') as file:
            file.write(text)
        with open(f'{tmp}/err', 'w') as err:
            run = subprocess.Popen([berth, 'run', option, f'{tmp}/file', '-n', '5'], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=err)
        before = 0
        while before < 0.3 and run.poll() is None:
            with open(f'/proc/{run.pid}/stat') as stat:
                before = sum(int(x) for x in stat.read().rsplit(')', 1)[1].split()[11:13]) / os.sysconf('SC_CLK_TCK')
            time.sleep(0.01)
        run.send_signal(signal.SIGTERM)
        _, status, used = os.wait4(run.pid, 0)
        run.returncode = os.waitstatus_to_exitcode(status)
        took = used.ru_utime + used.ru_stime - before
        with open(f'{tmp}/err') as err:
            message = err.read().strip()
        ok = run.returncode == 130 and 'interrupted while' in message and took < 1
        print(f'{"ok" if ok else "FAILED"}: SIGTERM after {before:.2f} s, {option}: exit code {run.returncode} {took:.2f} s later: {message[:200]}')
        n_bad += not ok
    return n_bad


def main():
    n_bad = 0
    if subprocess.run([berth, 'version'], preexec_fn=limit, capture_output=True).returncode != 0:
        del limits[resource.RLIMIT_AS]  # the shadow memory of a sanitizer is larger
    with tempfile.TemporaryDirectory() as tmp:
        for name, option, text, code in cases():
            if len(sys.argv) > 2 and name not in sys.argv[2:]:
                continue
            with open(f'{tmp}/file', 'w') as file:
                file.write(text)
            with open(f'{tmp}/err', 'w') as err:
                run = subprocess.Popen([berth, 'run', option, f'{tmp}/file', '-n', '200', '--temp', '1', '-s', '1'], preexec_fn=limit,
                                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=err)
            _, status, used = os.wait4(run.pid, 0)
            run.returncode = os.waitstatus_to_exitcode(status)
            rss, cpu = used.ru_maxrss << 10, used.ru_utime + used.ru_stime
            ok = run.returncode == code and rss <= MAX_RSS and cpu <= MAX_CPU
            with open(f'{tmp}/err') as err:
                print(f'{"ok" if ok else "FAILED"}: {name}: {len(text)} bytes, exit code {run.returncode}, {rss >> 20} MiB, '
                      f'{cpu:.1f} s: {err.read()[:200].strip()}')
            n_bad += not ok
        if len(sys.argv) == 2 or 'stop' in sys.argv[2:]:
            n_bad += stop(tmp)
    return n_bad > 0


sys.exit(main())
