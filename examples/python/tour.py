# %% [markdown]
# # A tour of Berth in Python
#
# Editors such as VS Code and Spyder run this file cell by cell, and `jupytext` converts it to a notebook. It uses the model that comes
# with Berth.

# %%
import numpy as np

import berth

# %% [markdown]
# ## Plan memory
#
# An item is a piece of memory that is alive from its first to its last step. The planner finds an offset for each item, and a bound that
# no plan can beat. In a notebook, a plan is shown as a memory map.

# %%
rng = np.random.default_rng(1)
first = rng.integers(0, 40, 200)
items = berth.make_items(first, first + rng.integers(1, 10, 200), rng.integers(1, 64, 200) * 1024, align=64)
plan = berth.plan(items, time_limit=0.2)
assert plan.verify() is None
print(f"peak {plan.peak} bytes, bound {plan.bound}, gap {plan.gap:.2%}, found by {plan.method}")
plan

# %% [markdown]
# The items can come from a file: CSV, a captured graph, a model in GGUF, ONNX (`berth.onnx_items`) or TensorFlow Lite
# (`berth.tflite_items`).

# %%
model = berth.Model(n_ctx=512)
graph_plan = berth.plan(berth.read_plan(model.path, n_ctx=512))
print(f"computing {model.arch} requires {graph_plan.peak} bytes; {len(graph_plan.items)} tensors share them")
graph_plan.save("tales.svg")

# %% [markdown]
# ## Recompute values to stay within a limit

# %%
ops = [berth.Op(0, flags=berth.INPUT)]
ops += [berth.Op(1000, [i]) for i in range(8)]
ops += [berth.Op(1000, [8, 1, 2], flags=berth.OUTPUT)]
schedule = berth.schedule(ops, 3500)
print("fits" if schedule.fits else "does not fit", schedule.peak, "bytes,", schedule.n_recomputed, "values recomputed")

# %% [markdown]
# ## Generate text

# %%
print("Once upon a time", end="")
for piece in model.stream("Once upon a time", max_tokens=30, seed=1):
    print(piece, end="", flush=True)
print()

chat = model.chat()
answer = chat.ask("Tell me a tale about a fox.", max_tokens=20, temperature=0)
print(answer, f"({answer.per_second:.0f} tokens/s)")

vectors = model.embed(["a ship", "a boat", "ten dogs"])
print(np.round(vectors @ vectors.T, 2))

# %% [markdown]
# ## Read and write model files
#
# Arrays are views of the mapped file. Nothing is read before it is used.

# %%
file = berth.GGUFReader(model.path)
embedding = file.tensors["token_embd.weight"]
print(embedding.name, embedding.type, embedding.shape, file.keys["general.architecture"])
writer = berth.GGUFWriter({"general.architecture": "example"})
writer.add_tensor("x", embedding.to_float()[:32], type="q4_0")
writer.write("example.gguf")

# %% [markdown]
# ## Compute a graph
#
# Tensors made from arrays use the memory of the arrays.

# %%
cpu = berth.Backend("CPU")
ctx = berth.Context()
a, b = rng.normal(size=(64, 32)).astype(np.float32), rng.normal(size=(16, 32)).astype(np.float32)
graph = ctx.graph(ctx.soft_max(ctx.mul_mat(ctx.from_numpy(a), ctx.from_numpy(b))))
print("compute buffer:", cpu.plan(graph).peak, "bytes")
cpu.compute(graph)
assert np.allclose(graph.outputs[0].numpy().sum(axis=-1), 1, atol=1e-5)
