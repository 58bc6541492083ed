#!/usr/bin/env python3
"""Writes gguf_blocks.json: random blocks of llama.cpp's block formats and what gguf-py makes of them, bit for bit.

usage: make_gguf_blocks.py > gguf_blocks.json        (needs the packages gguf and numpy)
"""
import json

import gguf
import numpy as np

# Bytes of a block, and where its f16 numbers lie.
FORMATS = {
    "q4_0": (18, [0]), "q4_1": (20, [0, 2]), "q5_0": (22, [0]), "q5_1": (24, [0, 2]), "q8_0": (34, [0]), "iq4_nl": (18, [0]),
    "q2_k": (84, [80, 82]), "q3_k": (110, [108]), "q4_k": (144, [0, 2]), "q5_k": (176, [0, 2]), "q6_k": (210, [208]),
}

random = np.random.default_rng(7)
out = {}
for name, (size, halves) in FORMATS.items():
    blocks = random.integers(0, 256, (2 if name.endswith("k") else 3, size), dtype=np.uint8)
    for at in halves:
        blocks[:, at:at + 2] = random.normal(0, 0.02, len(blocks)).astype("<f2").view(np.uint8).reshape(-1, 2)
    floats = gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType[name.upper()])
    out[name] = {"bytes": blocks.tobytes().hex(), "f32": floats.astype("<f4").tobytes().hex()}
print(json.dumps(out, indent=0))
