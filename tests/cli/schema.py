#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# schema.py BERTH: every --json output matches docs/berth.schema.json. Only the parts of JSON Schema that this file uses are
# checked: type, properties, required, additionalProperties, items, enum. Runs in the root of the sources.
import json, os, re, subprocess, sys, tempfile

berth = os.path.abspath(sys.argv[1])
model, small = 'tests/data/tales-3m-q8_0.gguf', 'tests/data/plan/small.csv'
kinds = {'object': dict, 'array': list, 'string': str, 'boolean': bool, 'null': type(None)}


def is_kind(value, kind):
    if kind in ('number', 'integer'):
        return not isinstance(value, bool) and isinstance(value, int if kind == 'integer' else (int, float))
    return isinstance(value, kinds[kind])


def faults(value, schema, path):
    wanted = schema.get('type', [])
    wanted = [wanted] if isinstance(wanted, str) else wanted
    if wanted and not any(is_kind(value, k) for k in wanted):
        yield f'{path}: {json.dumps(value)[:60]} is not {" or ".join(wanted)}'
        return
    if 'enum' in schema and value not in schema['enum']:
        yield f'{path}: {value!r} is none of {schema["enum"]}'
    if isinstance(value, dict):
        known = schema.get('properties', {})
        for name in schema.get('required', []):
            if name not in value:
                yield f'{path}: no "{name}"'
        for name, part in value.items():
            rest = schema.get('additionalProperties', True)
            if name in known:
                yield from faults(part, known[name], f'{path}.{name}')
            elif rest is False:
                yield f'{path}: "{name}" is not in the schema'
            elif isinstance(rest, dict):
                yield from faults(part, rest, f'{path}.{name}')
    if isinstance(value, list) and 'items' in schema:
        for i, part in enumerate(value):
            yield from faults(part, schema['items'], f'{path}[{i}]')


def cases(tmp):
    subprocess.run([berth, 'plan', small, '-o', f'{tmp}/plan.csv'], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([berth, 'gguf', 'quantize', model, f'{tmp}/q4.gguf', 'q4_0'], check=True, stdout=subprocess.DEVNULL)
    with open(f'{tmp}/text', 'w') as text:
        text.write('Once upon a time there was a ship. ' * 40)
    yield 'bench', ['bench', '-p', '8', '-n', '2', '-r', '1', model]
    yield 'client', ['client', os.path.dirname(berth) + '/../lib']
    yield 'devices', ['devices']
    yield 'embed', ['embed', model, 'a ship', 'a boat']
    yield 'explain', ['explain', model]
    yield 'fit', ['fit', '--memory', '1G', model]
    yield 'fit', ['fit', '--memory', '8M', model]
    yield 'fit', ['fit', '--memory', '64K', model]
    yield 'server plan', ['fit', '--memory', '1G', '--parallel', '3', model]
    yield 'server plan', ['explain', '--parallel', '3', model]
    yield 'gguf split', ['gguf', 'split', '--max-tensors', '20', model, f'{tmp}/part']
    yield 'gguf merge', ['gguf', 'merge', f'{tmp}/part-00001-of-00002.gguf', '-o', f'{tmp}/joined.gguf']
    yield 'gguf set', ['gguf', 'set', model, 'general.name=x', '-o', f'{tmp}/set.gguf']
    yield 'gguf hash', ['gguf', 'hash', model]
    yield 'gguf info', ['gguf', 'info', model]
    yield 'gguf check', ['gguf', 'check', model]
    yield 'gguf check', ['gguf', 'check', small]
    yield 'gguf diff', ['gguf', 'diff', model, f'{tmp}/q4.gguf']
    yield 'gguf quantize', ['gguf', 'quantize', model, f'{tmp}/q5.gguf', 'q5_0']
    yield 'gguf quantize', ['gguf', 'quantize', '--dry-run', model, 'q4_k_m']
    yield 'imatrix', ['imatrix', '-c', '8', '--chunks', '2', '-o', f'{tmp}/imatrix.gguf', model, f'{tmp}/text']
    yield 'ops', ['ops']
    yield 'perplexity', ['perplexity', '-c', '16', '--chunks', '2', model, f'{tmp}/text']
    yield 'plan', ['plan', small]
    yield 'plan', ['plan', '--capacity', '32KiB', small]
    yield 'plan', ['plan', model]
    yield 'run', ['run', '-n', '2', model]
    yield 'run', ['run', '-n', '2', '--logprobs', '3', model]
    yield 'train', ['train', model, '--data', f'{tmp}/text', '--val', f'{tmp}/text', '--lora', '2', '--steps', '2', '-c', '32', '-b', '1',
                    '-o', f'{tmp}/lora.gguf']
    yield 'gguf merge-lora', ['gguf', 'merge-lora', model, f'{tmp}/lora.gguf', '-o', f'{tmp}/merged.gguf']
    yield 'verify', ['verify', f'{tmp}/plan.csv']
    with open(f'{tmp}/plan.csv') as plan, open(f'{tmp}/bad.csv', 'w') as bad:  # everything at offset 0
        bad.writelines(line if line.startswith('id') else line.rsplit(',', 1)[0] + ',0\n' for line in plan)
    yield 'verify', ['verify', f'{tmp}/bad.csv']
    yield 'version', ['version']
    yield 'which', ['which', str(os.getpid())]
    with subprocess.Popen([berth, 'run', '-p', '-'], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as waits:
        yield 'which', ['which', str(waits.pid)]
        waits.kill()


# Text that a model generates under a schema is valid, and schemas that a grammar cannot express are refused.
def constrained(tmp):
    name = {'type': 'string', 'minLength': 1, 'maxLength': 8}
    shapes = [
        {'type': 'object', 'properties': {'name': name, 'age': {'type': 'integer'}, 'kind': {'enum': ['cat', 'a "dog"', 7, None]},
                                          'more': {'type': 'array', 'items': {'type': ['boolean', 'null']}, 'maxItems': 2}},
         'required': ['name', 'kind'], 'additionalProperties': False},
        {'type': 'array', 'items': {'type': 'number'}, 'minItems': 2, 'maxItems': 3},
        {'$defs': {'node': {'type': 'object', 'properties': {'left': {'anyOf': [{'$ref': '#/$defs/node'}, {'const': 0}]}},
                            'required': ['left']}}, '$ref': '#/$defs/node'},
        {'type': 'object', 'additionalProperties': name},
    ]
    for shape in shapes:
        with open(f'{tmp}/shape.json', 'w') as file:
            json.dump(shape, file)
        for seed in range(1, 4):
            run = subprocess.run([berth, 'run', '--json-schema', f'{tmp}/shape.json', '-s', str(seed), '-c', '2000', '--temp', '1.5'],
                                 stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
            try:
                yield from (f'{shape}: {fault}' for fault in faults(json.loads(run.stdout), shape, 'it'))
            except json.JSONDecodeError as error:
                if 'context is full' not in run.stderr:
                    yield f'{shape}: {error}: {run.stdout[:100]!r} {run.stderr}'
    for shape, want in (({'type': 'number', 'minimum': 3}, "'minimum' is not supported"), ({'type': 'thing'}, 'unknown type "thing"'),
                        ({'$ref': '#/$defs/x'}, 'does not exist in the file'), ({'required': ['a'], 'properties': {}}, "'a' is listed in 'required'"),
                        ({'type': 'string', 'minLength': 3, 'maxLength': 2}, 'minLength 3 is greater'), ([], 'a schema must be an object')):
        with open(f'{tmp}/shape.json', 'w') as file:
            json.dump(shape, file)
        run = subprocess.run([berth, 'run', '--json-schema', f'{tmp}/shape.json'], stdin=subprocess.DEVNULL, capture_output=True,
                             text=True, check=False)
        if run.returncode != 3 or want not in run.stderr:
            yield f'{shape}: exit code {run.returncode}, {run.stderr!r} is not {want!r}'


# The timeline of `run --trace`: every op is within its split and has its properties; the memory in use stays within the plan.
def traced(tmp):
    out = os.path.join(tmp, 'trace.json')
    run = subprocess.run([berth, 'run', '-n', '3', '-t', '2', '--trace', out, '--json'], stdin=subprocess.DEVNULL, capture_output=True,
                         text=True, check=False)
    with open(out) as file:
        events = json.load(file)['traceEvents']
    ops = [e for e in events if e.get('cat') == 'op']
    splits = [e for e in events if e.get('cat') == 'compute']
    memory = [e['args']['bytes'] for e in events if e['ph'] == 'C']
    for e in ops:
        args = e['args']
        if not {'op', 'device', 'split', 'read', 'written', 'flops', 'GB/s', 'GFLOP/s', 'threads busy'} <= args.keys():
            yield f'--trace: {e} lacks something'
        if not any(s['ts'] <= e['ts'] and e['ts'] + e['dur'] <= s['ts'] + s['dur'] + 0.002 for s in splits):
            yield f'--trace: {e} is in no split'
        rate = (args['read'] + args['written']) / max(e['dur'] * 1000, 1)
        if abs(rate - args['GB/s']) > 0.01 * rate + 0.002:
            yield f'--trace: {e}: {rate} GB/s'
    compute = json.loads(run.stdout)['memory'][0]['compute']
    if len(splits) != 3 or len(ops) < 100 or len(memory) != len(ops) or not 0 < max(memory) <= compute:
        yield f'--trace: {len(splits)} splits, {len(ops)} ops, {len(memory)} counts of memory of {compute}'


# Commands whose help has --json, including subcommands.
def with_json():
    def help_of(*words):
        return subprocess.run([berth, *words, '--help'], capture_output=True, text=True, check=False).stdout

    names = re.findall(r'^  ([a-z]+) ', help_of(), re.M)
    names += [f'gguf {part}' for part in re.findall(r'^  ([a-z-]+) ', help_of('gguf'), re.M)]
    return {name for name in names if re.search(r'--json(?!-)', help_of(*name.split()))}


def main():
    with open('docs/berth.schema.json') as file:
        schemas = json.load(file)['$defs']
    n_bad, seen = 0, set()
    with tempfile.TemporaryDirectory() as tmp:
        for name, words in cases(tmp):
            seen.add(name)
            run = subprocess.run([berth, *words, '--json'], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
            try:
                found = list(faults(json.loads(run.stdout), schemas[name], name)) if name in schemas else ['not in the schema']
            except json.JSONDecodeError as error:
                found = [f'{error}: {run.stdout[:100]!r} {run.stderr}']
            for fault in found[:5]:
                print(f'FAILED: berth {" ".join(words)} --json: {fault}')
            n_bad += len(found) > 0
        for fault in [*constrained(tmp), *traced(tmp)]:
            print(f'FAILED: {fault}')
            n_bad += 1
    for name in (schemas.keys() | with_json()) - seen:
        print(f'FAILED: no case of {name} is here')
        n_bad += 1
    print(f'{len(seen)} commands, {n_bad} failed')
    return n_bad > 0


if __name__ == '__main__':
    sys.exit(main())
