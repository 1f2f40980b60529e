#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""new_name.py FOLDER: generates tales with a name that tests/data/tales-3m-q8_0.gguf does not know, in these files:
new.txt      tales for training; every second one has a hero of that name
old.txt      other tales without the name
prompts.txt  20 beginnings that do not occur in new.txt
"""
import os
import random
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../models"))
import grammar

NAME = "Bettina" # consists of pieces of the tokenizer
folder = sys.argv[1]
r = random.Random(11)


def hero(r):
    kind = r.choice(["girl"] + grammar.ANIMALS) if r.random() < 0.5 else "girl"
    return {"name": NAME, "intro": f"a {r.choice(grammar.SMALL)} {kind} named {NAME}", "he": "she", "his": "her", "him": "her"}


def tale(r, is_new):
    plain = grammar.hero
    calls = []

    def first(r):
        calls.append(1)
        return hero(r) if is_new and len(calls) == 1 else plain(r)

    grammar.hero = first
    text = grammar.tale(r)
    grammar.hero = plain
    return text


new = [tale(r, i % 2 == 0) for i in range(400)]
old = [tale(r, False) for _ in range(60)]
prompts = []
while len(prompts) < 20:
    h = hero(r)
    start = grammar.opening(r, h, r.choice(grammar.PLACES)).split(NAME)[0].rstrip()
    if not any(t.startswith(start) for t in new) and start not in prompts:
        prompts.append(start)
for name, texts in (("new.txt", new), ("old.txt", old), ("prompts.txt", prompts)):
    with open(os.path.join(folder, name), "w") as f:
        f.write("\n".join(texts) + "\n")
