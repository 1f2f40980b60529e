#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""check-references.py [FOLDER...]: finds references to files that do not exist.

Checks comments of C, CUDA, Python, shell, CMake and JavaScript sources, and all text of Markdown files. A reference is a path such as
src/base/file.c or base/file.c, or a bare name such as file.c. It is valid if a file of the repository has this path, or a path that
ends with it. Names with capitals such as NAME.c are placeholders. tools/known-references.txt lists names of files outside the
repository. CHANGELOG.md is not checked, because it names files of older versions. Prints FILE:LINE for each wrong reference, and
exits with 1 if there is one. FOLDER defaults to all files.
"""
import pathlib
import re
import subprocess
import sys

ENDINGS = r'(?:c|h|cu|cuh|cpp|hpp|js|mjs|py|sh|md|tsv|cmake)'
REFERENCE = re.compile(r'(?<![\w./*$<>{}~@%-])((?:[\w-]+/)*[A-Za-z_][\w.-]*\.' + ENDINGS + r')(?![\w/*-]|\.\w)')
PLACEHOLDER = re.compile(r'[A-Z]{4}')  # NAME.c, FILE.c
C_COMMENT = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|\n', re.S)
HASH_COMMENT = re.compile(r'(?:^|\s)#(?!\!).*')
C_SUFFIXES = ('.c', '.h', '.cu', '.cuh', '.cpp', '.js', '.css', '.mjs')
HASH_SUFFIXES = ('.py', '.sh', '.cmake')


def comments_of(path):
    """Yields (line, text) of the comments of a source file, or of all lines of a Markdown file."""
    text = path.read_text(encoding='utf-8', errors='replace')
    if path.suffix == '.md':
        yield from enumerate(text.splitlines(), 1)
    elif path.suffix in C_SUFFIXES:
        for match in C_COMMENT.finditer(text):
            token = match.group()
            if token.startswith(('//', '/*')):
                line = text.count('\n', 0, match.start()) + 1
                yield from enumerate(token.splitlines(), line)
    elif path.suffix in HASH_SUFFIXES or path.name in ('CMakeLists.txt', 'Makefile'):
        for i, row in enumerate(text.splitlines(), 1):
            match = HASH_COMMENT.search(row)
            if match:
                yield i, match.group()


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    files = subprocess.run(['git', 'ls-files', '--cached', '--others', '--exclude-standard'], cwd=root, check=True, text=True,
                           capture_output=True).stdout.splitlines()
    files = [name for name in files if (root / name).is_file()]
    endings = set()  # every path and every end of a path
    for name in files:
        parts = name.split('/')
        endings.update('/'.join(parts[i:]) for i in range(len(parts)))
    known = set()
    for row in (root / 'tools/known-references.txt').read_text(encoding='utf-8').splitlines():
        if row and not row.startswith('#'):
            known.add(row.split()[0])
    folders = sys.argv[1:]
    n = n_wrong = 0
    for name in files:
        if name == 'CHANGELOG.md' or (folders and not any(name.startswith(folder.rstrip('/') + '/') for folder in folders)):
            continue
        for line, text in comments_of(root / name):
            for reference in REFERENCE.findall(text):
                if PLACEHOLDER.search(reference):
                    continue
                n += 1
                if reference not in endings and reference not in known:
                    n_wrong += 1
                    print(f'{name}:{line}: there is no file {reference}')
    print(f'references: {n} to files, {n_wrong} wrong', file=sys.stderr)
    return 1 if n_wrong else 0


if __name__ == '__main__':
    sys.exit(main())
