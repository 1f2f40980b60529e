# SPDX-License-Identifier: MIT
"""Berth in Python: the memory planner, model files, tensor graphs and language models.

Planner: make_items, plan, verify, bound, read_plan, schedule; onnx_items and tflite_items read models of other programs.
Model files: GGUFReader, GGUFWriter, quantize, dequantize.
Graphs: Context, Tensor, Graph, Backend, devices.
Language models: Model, Session, Chat, Sampling.

A call that fails raises BerthError with Berth's message. Long calls release the GIL, and Ctrl-C ends them.
"""

from ._library import BerthError, OutOfMemoryError, StoppedError, lib, text_of
from .gguf import TYPES, GGUFReader, GGUFWriter, TensorInfo, dequantize, quantize
from .graph import Backend, Context, Graph, Tensor, devices
from .model import Chat, Generated, Model, Sampling, Session
from .onnx_reader import onnx_items
from .planner import (
    ANY,
    INPUT,
    ITEM,
    NO_SPILL,
    ONCE,
    OUTPUT,
    Fault,
    Op,
    Plan,
    PlanInput,
    Schedule,
    bound,
    make_items,
    plan,
    read_plan,
    schedule,
    verify,
)
from .tflite_reader import tflite_items

__version__: str = text_of(lib.berth_version())

__all__ = [
    "ANY", "Backend", "BerthError", "Chat", "Context", "Fault", "GGUFReader", "GGUFWriter", "Generated", "Graph", "INPUT", "ITEM",
    "Model", "NO_SPILL", "ONCE", "OUTPUT", "Op", "OutOfMemoryError", "Plan", "PlanInput", "Sampling", "Schedule", "Session",
    "StoppedError", "TYPES", "Tensor", "TensorInfo", "bound", "dequantize", "devices", "make_items", "onnx_items", "plan",
    "quantize", "read_plan", "schedule", "tflite_items", "verify",
]  # fmt: skip
