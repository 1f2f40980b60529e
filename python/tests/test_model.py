# SPDX-License-Identifier: MIT
"""Tests language models with the tales model of the tests: texts, streams, chats, embeddings, tokens, errors, and Ctrl-C."""

import gc
import json
import os
import signal
import subprocess
import threading
import time

import numpy as np
import pytest

import berth
from conftest import MODEL

PROMPT = "Once upon a time"


def test_same_text_as_the_program(model, program):
    options = ["-m", MODEL, "-p", PROMPT, "-n", "30", "--seed", "11", "--ctx", "256", "--device", "CPU", "--threads", "1", "--json"]
    run = subprocess.run([program, "run", *map(str, options)], capture_output=True, check=True)
    expected = json.loads(run.stdout)
    text = model.generate(PROMPT, max_tokens=30, seed=11)
    assert text == expected["text"]
    assert (text.n_prompt, text.n_generated, text.seed) == (expected["prompt_tokens"], expected["tokens"], 11)
    assert text.end == "tokens" and text.per_second > 0


def test_stream(model):
    pieces = list(model.stream(PROMPT, max_tokens=20, seed=5))
    assert len(pieces) > 3 and "".join(pieces) == model.generate(PROMPT, berth.Sampling(max_tokens=20, seed=5))
    stream = model.stream(PROMPT)
    next(stream)
    with pytest.raises(berth.BerthError, match="in use by another call"):
        model.generate(PROMPT)
    stream.close()
    assert model.generate(PROMPT, max_tokens=1).n_generated == 1
    with pytest.raises(berth.BerthError, match="temperature is -1"):
        list(model.stream(PROMPT, temperature=-1))


def test_ends(model):
    assert model.generate(PROMPT, temperature=0, stop=["named"]).end == "stop"
    assert model.generate(PROMPT, json_schema='{"enum": ["yes", "no"]}') in ('"yes"', '"no"')
    assert set(model.generate(PROMPT, grammar="root ::= [ab]+", max_tokens=8)) <= set("ab")
    assert model.generate(PROMPT, max_tokens=0) == ""
    seen = []
    text = model.generate(PROMPT, on_text=lambda piece: seen.append(piece) or len(seen) < 4)
    assert text.end == "aborted" and "".join(seen) == text and len(seen) == 4

    def fail(piece):
        raise RuntimeError("from the callback")

    with pytest.raises(RuntimeError, match="from the callback"):
        model.generate(PROMPT, on_text=fail)


def test_sampling(model):
    greedy = {model.generate(PROMPT, max_tokens=8, temperature=0, seed=seed) for seed in range(3)}
    assert len(greedy) == 1
    assert len({model.generate(PROMPT, max_tokens=8, seed=seed) for seed in range(5)}) > 1
    likely = int(berth.Session(model, n_ctx=64).decode(model.tokenize(PROMPT, add_special=True)).argmax())
    free = model.generate(PROMPT, max_tokens=1, temperature=0)
    assert free == model.detokenize([likely])
    assert model.generate(PROMPT, max_tokens=1, temperature=0, logit_bias={likely: float("-inf")}) != free
    with pytest.raises(TypeError):
        model.generate(PROMPT, temprature=1)


def test_chat(model):
    chat = model.chat(system="You tell tales.", template="chatml")
    first = chat.ask("Tell me a tale.", max_tokens=12, seed=1)
    second = chat.ask("And then?", max_tokens=12, seed=1)
    assert [m["role"] for m in chat.messages] == ["system", "user", "assistant", "user", "assistant"]
    assert chat.messages[2]["content"] == first and chat.messages[4]["content"] == second
    assert second.n_prompt < first.n_prompt + 40  # the first messages were in the cache
    with pytest.raises(berth.BerthError, match="last message is the user's"):
        chat.answer()
    with pytest.raises(berth.BerthError, match="unknown role 'pirate'"):
        chat.add("pirate", "Arr")
    with pytest.raises(berth.BerthError, match="nonsense"):
        model.chat(template="nonsense")
    shipped = berth.Model(threads=1)
    answer = shipped.answer([{"role": "user", "content": "Tell me a tale about a fox."}], max_tokens=5, temperature=0)
    assert answer.n_generated == 5


def test_embed(model):
    one = model.embed("a ship")
    rows = model.embed(["a ship", "a boat", "ten dogs"])
    assert one.shape == (model.n_embd,) and rows.shape == (3, model.n_embd) and np.allclose(rows[0], one)
    assert np.allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)
    assert not np.allclose(model.embed("a ship", pooling="last"), one)
    assert abs(np.linalg.norm(model.embed("a ship", normalize=False)) - 1) > 1e-3
    with pytest.raises(ValueError, match="pooling"):
        model.embed("x", pooling="max")


def test_tokens(model):
    tokens = model.tokenize(PROMPT, add_special=True)
    assert tokens[0] == model.bos and tokens[1:] == model.tokenize(PROMPT)
    assert model.detokenize(tokens).strip() == PROMPT and model.is_end(model.eos) and not model.is_end(tokens[1])
    assert model.tokenize("") == [] and model.detokenize([]) == ""
    text = "ä" * 1000 + "\N{SAILBOAT}"
    assert model.detokenize(model.tokenize(text)).strip() == text
    with pytest.raises(berth.BerthError, match="token -1"):
        model.detokenize([-1])


def test_session(model):
    session = berth.Session(model, n_ctx=64, n_batch=16, cache_type="q8_0")
    tokens = model.tokenize(PROMPT, add_special=True)
    logits = session.decode(tokens)
    assert session.n_ctx == 64 and session.n_past == len(tokens) and logits.shape == (model.n_vocab,)
    session.reset()
    for token in tokens:
        single = session.decode([token])
    assert int(single.argmax()) == int(logits.argmax())
    assert all(row["compute"] >= row["bound"] for row in session.memory()) and session.memory()[0]["device"] == "CPU"
    session.reset()
    with pytest.raises(berth.BerthError, match="has processed no token"):
        session.logits()
    with pytest.raises(berth.BerthError, match="64 free positions"):
        session.decode([1] * 65)


def test_open_errors(tmp_path):
    with pytest.raises(berth.BerthError, match="cannot be read"):
        berth.Model(tmp_path / "nowhere.gguf")
    (tmp_path / "bad.gguf").write_bytes(b"GGUF and then nothing")
    with pytest.raises(berth.BerthError):
        berth.Model(tmp_path / "bad.gguf")
    with pytest.raises(berth.BerthError, match="moon"):
        berth.Model(MODEL, device="moon")
    seen = []
    berth.Model(MODEL, mmap=False, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1][0] == seen[-1][1] > 0
    with pytest.raises(RuntimeError, match="stop it"):
        berth.Model(MODEL, mmap=False, progress=lambda done, total: (_ for _ in ()).throw(RuntimeError("stop it")))


def test_interrupt(model):
    session = berth.Session(model, n_ctx=4096)
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    start = time.monotonic()
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        while True:
            session.generate(PROMPT, logit_bias={model.eos: float("-inf")})
    assert time.monotonic() - start < 5
    assert session.generate(PROMPT, max_tokens=2).n_generated == 2


def test_cycles_are_collected():
    """Python collects a cycle in any order, but a model is freed after its sessions and chats."""
    for _ in range(3):
        model = berth.Model(MODEL, threads=1, n_ctx=64)
        chat = model.chat(template="chatml")
        cycle = [model, berth.Session(model, n_ctx=64), chat]
        cycle.append(cycle)
        del model, chat, cycle
        gc.collect()


def test_facts(model):
    assert model.arch == "llama" and model.n_layer > 0 and model.keys["general.architecture"] == "llama"
    assert "llama" in repr(model) and model.memory()[0]["weights"] > 0
    items = berth.read_plan(MODEL, n_ctx=64)
    plan = berth.plan(items)
    assert "MUL_MAT" in (items.ops or []) and plan.verify() is None and "<svg" in plan.svg()
