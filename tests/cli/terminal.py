#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# terminal.py BERTH: no text in a file or in a file name controls the terminal: no command prints ESC, U+0080 to U+009F, or invalid
# UTF-8, on either stream. Runs in the root of the sources.
import os, shutil, struct, subprocess, sys, tempfile

berth = os.path.abspath(sys.argv[1])
evil = b'\x1b[31m\xc2\x9b2J\x9b2J\x07'
n = n_good = n_bad = 0

def text(s):
    return struct.pack('<Q', len(s)) + s

def model():  # keys, values, arrays and tensors with names that contain control sequences
    out = b'GGUF' + struct.pack('<IQQ', 3, 1, 3)
    out += text(b'general.name') + struct.pack('<I', 8) + text(b'na' + evil)
    out += text(b'k' + evil) + struct.pack('<I', 8) + text(b'v' + evil)
    out += text(b'list') + struct.pack('<IIQ', 9, 8, 2) + text(evil) + text(b'y' + evil)
    out += text(b't' + evil) + struct.pack('<IQIQ', 1, 1, 0, 0)
    return out + b'\0' * (-len(out) % 32) + b'\0' * 32

def is_tame(out):
    try:
        return all(c in '\n\t' or (ord(c) >= 0x20 and not 0x7f <= ord(c) < 0xa0) for c in out.decode())
    except UnicodeDecodeError:
        return False

def case(*words):
    global n, n_good, n_bad
    n += 1
    run = subprocess.run([berth, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    n_good += run.returncode == 0
    for name, out in (('standard output', run.stdout), ('standard error', run.stderr)):
        if not is_tame(out):
            line = next(x for x in out.split(b'\n') if not is_tame(x))
            print(f'FAILED: berth {words}: on {name}: {line[:200]}')
            n_bad += 1

root = os.getcwd()
with tempfile.TemporaryDirectory() as tmp:
    os.chdir(tmp)
    with open('names.gguf', 'wb') as f:
        f.write(model())
    tales, small, none = b'm' + evil + b'.gguf', b's' + evil + b'.csv', b'none' + evil
    shutil.copy(f'{root}/tests/data/tales-3m-q8_0.gguf', tales)
    shutil.copy(f'{root}/tests/data/plan/small.csv', small)
    for words in (['gguf', 'info'], ['gguf', 'info', '--json'], ['gguf', 'check'], ['gguf', 'check', '--json'], ['run'], ['plan'],
                  ['explain'], ['bench'], ['fit', '--memory', '1G']):
        case(*words, 'names.gguf')
    case('gguf', 'diff', 'names.gguf', tales)
    case('gguf', 'diff', '--json', 'names.gguf', tales)
    case('gguf', 'quantize', 'names.gguf', 'out.gguf', 'q8_0')
    for file in (tales, small, none):
        for words in (['run', '-n', '1'], ['run', '--json', '-n', '1'], ['bench', '-p', '8', '-n', '1', '-r', '1'],
                      ['fit', '--memory', '1G'], ['fit', '--json', '--memory', '1G'], ['fit', '--memory', '1K'], ['explain'],
                      ['explain', '--json'], ['plan'], ['plan', '--json'], ['plan', '-o', b'o' + evil + b'.csv'], ['verify'],
                      ['gguf', 'info'], ['gguf', 'check'], ['map', '-o', b'o' + evil + b'.svg'], ['map', '-o', evil],
                      ['run', '-n', '1', '--trace', evil], ['run', '-n', '1', '--map', b'r' + evil + b'.svg'],
                      ['plan', '--capacity', evil], ['run', '--device', evil], ['run', '--cache-type', evil]):
            case(*words, file)
        case('gguf', 'quantize', file, b'q' + evil, 'q4_0')
        case('gguf', 'quantize', file, b'q' + evil, evil)
        case('imatrix', '-c', '8', '--chunks', '1', '-o', b'i' + evil, tales, file)
    for words in ([evil], [b'--' + evil], ['run', b'--' + evil], ['gguf', evil], ['help', evil]):
        case(*words)
    os.chdir(root)
print(f'{n} cases, {n_good} of them with exit code 0, {n_bad} failed')
sys.exit(n_bad > 0 or n_good < 20)
