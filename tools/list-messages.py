#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""list-messages.py [--check] [FOLDER...]: lists the texts of the sources that a user can see, as FILE:LINE<TAB>TEXT.

A text is a string literal, or several adjacent ones, with at least two words. Comments, include lines, assembler, JSON members and
markup are not texts. A format directive (%s, PRId64) prints as {}, a newline as a line break symbol. FOLDER defaults to src.

With --check, the script prints only texts that violate a rule, and exits with 1 if there is one. The rules: a text contains no
expression of tools/banned-words.txt; no line of it is longer than 240 characters; it has at most two lines that are not empty. Help
(.about, Usage:), the man page and lines of generated files are exempt from the last two rules.
"""
import pathlib
import re
import sys

TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|[A-Za-z_]\w*|\n|\S', re.S)
DIRECTIVE = re.compile(r'%[-+ #0]*(?:\*|\d+)?(?:\.(?:\*|\d+))?(?:hh|h|ll|l|z|j|t)?[a-zA-Z]')
TWO_WORDS = re.compile(r'[A-Za-z]{2,}[,;:]? +(?:\{\}|[\'(\w-])')
NOT_TEXT = re.compile(r"""^[,{]? ?['"]\w+['"]: |</|/>|^<|\[%\[|%\[\w+\]|\bv\d+\.\d+[bhsd]|\[d\d\]""")  # JSON members, markup, assembler
EXEMPT = re.compile(r'Usage:|Exit codes:|^\.[A-Z][a-z]|\w=\{\}|digraph|::=|_token')  # help, man page, generated files
NEWLINE = '⏎'
MAX_LENGTH = 240
MAX_LINES = 2


def file_texts(path):
    """Yields (line, text, name) for each sequence of adjacent string literals; name: the field that it initialises, or ''."""
    line, start, parts, in_asm = 1, 0, [], False
    before = ['', '', '']  # the last tokens before the text: '.', 'about', '='
    source = re.sub(r'^[ \t]*#[ \t]*include[^\n]*', '', path.read_text(encoding='utf-8'), flags=re.M)
    for token in TOKEN.findall(source):
        if token.startswith('"'):
            if not parts:
                start = line
            parts.append(token[1:-1])
        elif parts and re.fullmatch(r'PRI\w+', token):
            parts.append('\0')
        elif token not in ('\n', '\\') and not token.startswith(('//', '/*')):
            if parts and not in_asm:
                yield start, text_plain(''.join(parts)), before[1] if before[0] == '.' and before[2] == '=' else ''
            parts = []
            before = before[1:] + [token]
            if token in ('asm', '__asm__'):
                in_asm = True
            elif token == ';':
                in_asm = False
        line += token.count('\n')


def text_plain(raw):
    """Returns the text of a literal as a user sees it, with {} for each value."""
    raw = re.sub(r'%[-+ #0]*\d*\0', '{}', raw)
    raw = DIRECTIVE.sub('{}', raw.replace('%%', '\1')).replace('\1', '%').replace('\0', '')
    return raw.replace('\\n', NEWLINE).replace('\\"', '"').replace('\\t', ' ').strip()


def faults_find(text, name, banned):
    """Returns the violated rules."""
    faults = [f"'{m.group()}': write {instead}" for m, instead in ((b.search(text), i) for b, i in banned) if m]
    if name != 'about' and not EXEMPT.search(text):
        lines = [part for part in text.split(NEWLINE) if part]
        if any(len(part) > MAX_LENGTH for part in lines):
            faults.append(f'longer than {MAX_LENGTH} characters')
        if len(lines) > MAX_LINES:
            faults.append(f'more than {MAX_LINES} lines')
    return faults


def banned_read(path):
    """Returns (expression, replacement) for each line of the file that is not a comment."""
    rows = [row.split('\t') for row in path.read_text(encoding='utf-8').splitlines() if row and not row.startswith('#')]
    return [(re.compile(row[0], re.I), row[1]) for row in rows]


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    folders = [a for a in sys.argv[1:] if a != '--check'] or ['src']
    is_check = '--check' in sys.argv[1:]
    banned = banned_read(root / 'tools/banned-words.txt')
    n_texts = n_found = 0
    for folder in folders:
        for path in sorted(p for p in (root / folder).rglob('*') if p.suffix in ('.c', '.h', '.cu', '.cuh')):
            for line, text, name in file_texts(path):
                if not TWO_WORDS.search(text) or NOT_TEXT.search(text):
                    continue
                n_texts += 1
                faults = faults_find(text, name, banned)
                n_found += bool(faults)
                if not is_check:
                    print(f'{path.relative_to(root)}:{line}\t{text}')
                elif faults:
                    print(f'{path.relative_to(root)}:{line}: {"; ".join(faults)}: {text}')
    print(f'messages: {n_texts} texts, {n_found} findings' if is_check else f'{n_texts} texts', file=sys.stderr)
    return 1 if is_check and n_found else 0


if __name__ == '__main__':
    sys.exit(main())
