#!/usr/bin/env python3
"""make-reference.py [FOLDER]: a reference of the public headers as Markdown, one page per header and an index, into FOLDER (build/docs).
make-reference.py --check: print each public function without a comment; the exit code is 1 if there is one.

The text of a page is the text of the header:
- The comment at the top of the file introduces the page.
- `// ---- heading ----` starts a section. A comment block that a blank line follows is text of the section.
- A comment block directly above a declaration describes it. Structs and enums are shown with the comments of their members.
Names of other declarations, of headers and of files in docs become links.
"""
import collections
import glob
import os
import re
import sys

FUNCTION = re.compile(r"(?:GGML_NORETURN )?(?:GGML_API|GGML_BACKEND_API|BERTH_API)\b.*?(\w+)\(")
RECORD = re.compile(r"((?:struct|enum|union) \w+)(?: \{|;)")
CALLBACK = re.compile(r"typedef .*?\(\*(\w+)\)")
TYPE = re.compile(r"typedef .*\b(\w+)(?:\[\d+\])?;$")
MACRO = re.compile(r"#define (\w+)")
HEADING = re.compile(r"// ---- (.*) ----$")
UNNAMED = "types and constants"  # the section before the first heading


# A declaration, or several that share a comment: their names are in names. code and comment are lists of lines. link is the address
# of the heading.
Item = collections.namedtuple("Item", "kind name names line code comment link")


class Section:
    def __init__(self, name, link):
        self.name = name
        self.link = link
        self.text = []  # comment blocks, each a list of lines
        self.items = []

    def functions(self):
        return [item for item in self.items if item.kind == "function"]


class Header:
    def __init__(self, path):
        self.path = path
        self.name = os.path.basename(path)
        self.page = self.name[:-2] + ".md"
        self.slugs = {}
        self.intro = []  # without the name of the header
        self.sections = [Section(UNNAMED, self.link_to(UNNAMED))]
        with open(path, encoding="utf-8") as file:
            self.lines = file.read().splitlines()
        self.parse()
        self.sections = [section for section in self.sections if section.items or section.text]

    def link_to(self, title):
        """The address of a heading, as GitHub and most renderers form it: repeated headings are numbered."""
        slug = re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")
        n = self.slugs.get(slug, 0)
        self.slugs[slug] = n + 1
        return self.page + "#" + slug + ("-%d" % n if n > 0 else "")

    def parse(self):
        comment = []
        i = 0
        while i < len(self.lines):
            line = self.lines[i]
            heading = HEADING.match(line)
            if heading:
                self.sections.append(Section(heading.group(1), self.link_to(heading.group(1))))
            elif line.startswith("//"):
                comment += [line[2:]] if "clang-format o" not in line else []
            elif line == "#pragma once":
                title = comment[1].split(": ", 1)[1]  # after the licence: " name.h: title"
                self.intro = [title[0].upper() + title[1:]] + comment[2:]
                comment = []
            else:
                end = self.declaration_end(i)
                if end > i:
                    self.add(i, end, comment)
                elif comment and line == "":
                    self.sections[-1].text.append(comment)
                comment = []
                i = max(i, end - 1)
            i += 1

    def declaration_end(self, i):
        """The line after the declaration that starts at line i; i if none does."""
        line = self.lines[i]
        if MACRO.match(line):
            while self.lines[i].endswith("\\"):
                i += 1
            return i + 1
        if not (FUNCTION.match(line) or RECORD.match(line) or line.startswith("typedef ")):
            return i
        is_block = line.endswith("{")
        while not (self.lines[i].startswith("}") if is_block else self.lines[i].split(" //")[0].endswith(";")):
            i += 1
        return i + 1

    def add(self, i, end, comment):
        code = self.lines[i:end]
        text = " ".join(line.split(" //")[0].strip() for line in code)
        for kind, pattern in (("function", FUNCTION), ("callback", CALLBACK), ("record", RECORD), ("type", TYPE), ("macro", MACRO)):
            found = pattern.match(text)
            if found:
                break
        name, items = found.group(1), self.sections[-1].items
        is_forward = kind == "record" and len(code) == 1
        is_whole = comment or kind == "function" or (kind == "record" and not is_forward)
        if not is_whole and items and items[-1].kind == kind and self.lines[i - 1] == items[-1].code[-1]:
            items[-1].code.extend(code)  # it follows the last one without a blank line: their comment is for both
            items[-1].names.append(name)
        elif is_whole or not (is_forward or kind == "macro"):
            items.append(Item(kind, name, [name], i + 1, code, comment, self.link_to(name)))


class Writer:
    """Text of comments as Markdown."""

    def __init__(self, headers, guides, folder):
        root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        self.links = {os.path.relpath(path, root): os.path.relpath(path, folder) for path in guides}
        for header in headers:
            self.links[header.name] = header.page
            for section in header.sections:
                for item in section.items:
                    for name in item.names:
                        word = name.split()[-1]  # of "struct ggml_tallocr"
                        if item.kind == "function" or word not in self.links:
                            self.links[word] = item.link

    def span(self, text, own=""):
        """One paragraph: names become links, except the name that the paragraph describes."""
        parts = text.split("`")
        for i in range(0, len(parts), 2):
            part = re.sub(r"([*<>\[\]|])", r"\\\1", parts[i])
            part = re.sub(r"(?<!\w)_", r"\\_", part)
            parts[i] = re.sub(r"([\w./-]*\w)(\(\))?", lambda found: self.name(found.group(0), found.group(1), own), part)
        return "`".join(parts)

    def name(self, text, word, own):
        return "[%s](%s)" % (text, self.links[word]) if word in self.links and word != own else text

    def block(self, lines, own=""):
        """Comment lines: paragraphs are split by empty lines, `- ` starts an item of a list."""
        paragraphs = []
        for line in lines:
            text = line.strip()
            if text == "" or text.startswith("- ") or not paragraphs or paragraphs[-1] == "":
                paragraphs.append(text)
            else:
                paragraphs[-1] += " " + text
        out = []
        for i, text in enumerate(paragraphs):
            if text.startswith("- ") and i > 0 and not paragraphs[i - 1].startswith("- "):
                out.append("")
            out.append(self.span(text, own))
        return "\n".join(out) + "\n"


def page_write(folder, header, writer):
    out = ["# " + header.name + "\n", writer.block(header.intro, header.name), "Sections of this page:\n"]
    for section in header.sections:
        functions = ["[%s](%s)" % (item.name, item.link) for item in section.functions()]
        out.append("- [%s](%s)%s" % (section.name, section.link, ": " + ", ".join(functions) if functions else ""))
    out.append("\n[All headers](index.md)\n")
    for section in header.sections:
        out.append("## " + section.name + "\n")
        out += [writer.block(block) for block in section.text]
        for item in section.items:
            out.append("### " + item.name + "\n")
            out.append("```c\n" + "\n".join(item.code) + "\n```\n")
            if item.comment:
                out.append(writer.block(item.comment, item.name.split()[-1]))
    with open(os.path.join(folder, header.page), "w", encoding="utf-8") as file:
        file.write("\n".join(out))


def index_write(folder, headers):
    out = ["# Reference of the public headers\n", "Each header has a page. Its sections name tasks; the functions of a task follow.\n"]
    for header in headers:
        title = " ".join(line.strip() for line in header.intro).split(". ")[0].rstrip(".")
        out.append("## [%s](%s)\n\n%s.\n" % (header.name, header.page, title))
        for section in header.sections:
            items = section.functions() or section.items
            out.append("- [%s](%s): %s" % (section.name, section.link, ", ".join("[%s](%s)" % (i.name, i.link) for i in items)))
        out.append("")
    with open(os.path.join(folder, "index.md"), "w", encoding="utf-8") as file:
        file.write("\n".join(out))


def check(headers):
    bare = [(header, item) for header in headers for section in header.sections for item in section.functions() if not item.comment]
    for header, item in bare:
        print("%s:%d: %s has no comment" % (os.path.relpath(header.path), item.line, item.name))
    if not bare:
        print("reference: every public function has a comment")
    return 1 if bare else 0


def main():
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    paths = glob.glob(os.path.join(root, "include", "*.h"))
    # ggml's headers come first, and ggml.h before all others
    paths.sort(key=lambda path: (os.path.basename(path).startswith("berth"), os.path.basename(path) != "ggml.h", path))
    headers = [Header(path) for path in paths]
    if sys.argv[1:] == ["--check"]:
        return check(headers)
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(root, "build", "docs")
    os.makedirs(folder, exist_ok=True)
    writer = Writer(headers, glob.glob(os.path.join(root, "docs", "**", "*.md"), recursive=True), folder)
    for header in headers:
        page_write(folder, header, writer)
    index_write(folder, headers)
    print("%s: %d pages" % (os.path.join(folder, "index.md"), len(headers)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
