#!/usr/bin/env python3
"""Holds smollm2_draft_7m.json against a float64 forward pass that shares no code with the engine.

usage: check_draft.py MODEL.gguf GOLDEN.json      needs: pip install gguf numpy

Prints the largest distance of each item's top logits and nll, and each greedy step whose token is not the argmax of the
logits, or whose margin is another. As of the golden's first version that is three steps of the prompt of 275 tokens.
"""
import json, sys
import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize

reader = GGUFReader(sys.argv[1])
field = lambda key: reader.fields["llama." + key].contents()
W = {t.name: dequantize(t.data, t.tensor_type).astype(np.float64).reshape([int(n) for n in reversed(t.shape)]) for t in reader.tensors}
heads, kv_heads, layers = field("attention.head_count"), field("attention.head_count_kv"), field("block_count")
eps, base, dim = field("attention.layer_norm_rms_epsilon"), field("rope.freq_base"), field("rope.dimension_count")

def norm(x, w):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * w

def rope(x):  # [tokens, heads, dim], pairs side by side
    angle = np.arange(len(x))[:, None] * base ** (-np.arange(0, dim, 2) / dim)
    cos, sin, even, odd = np.cos(angle)[:, None], np.sin(angle)[:, None], x[..., 0::2], x[..., 1::2]
    return np.stack([even * cos - odd * sin, even * sin + odd * cos], -1).reshape(x.shape)

def logits(ids):
    x, n = W["token_embd.weight"][ids], len(ids)
    mask = np.triu(np.full((n, n), -1e30), 1)
    for i in range(layers):
        w = lambda name: W[f"blk.{i}.{name}.weight"]
        h = norm(x, w("attn_norm"))
        q, k, v = ((h @ w("attn_" + p).T).reshape(n, -1, dim) for p in "qkv")
        q, k, o = rope(q), rope(k), np.empty_like(q)
        for head in range(heads):
            kv = head * kv_heads // heads
            s = q[:, head] @ k[:, kv].T / np.sqrt(dim) + mask
            s = np.exp(s - s.max(-1, keepdims=True))
            o[:, head] = s / s.sum(-1, keepdims=True) @ v[:, kv]
        x = x + o.reshape(n, -1) @ w("attn_output").T
        h = norm(x, w("ffn_norm"))
        gate = h @ w("ffn_gate").T
        x = x + (gate / (1 + np.exp(-gate)) * (h @ w("ffn_up").T)) @ w("ffn_down").T
    return norm(x, W["output_norm.weight"]) @ W.get("output.weight", W["token_embd.weight"]).T

for item in json.load(open(sys.argv[2]))["items"]:
    ids = item["ids"] + item["greedy"]
    rows, n = logits(np.array(ids[:-1])), len(item["ids"])
    top = np.abs(rows[n - 1][item["top_ids"]] - item["top_logits"]).max()
    nll = np.array([np.log(np.exp(r - r.max()).sum()) + r.max() - r[t] for r, t in zip(rows[:n - 1], ids[1:n])])
    print(f"{n} tokens: top logits within {top:.6f}, nll within {np.abs(nll - item['nll']).max():.6f}")
    for step, (token, margin) in enumerate(zip(item["greedy"], item["greedy_margin"])):
        row = rows[n - 1 + step]
        first, second = np.argsort(-row)[:2]
        if first != token or abs(row[first] - row[second] - margin) > 0.002:
            print(f"  step {step}: argmax {first} by {row[first] - row[second]:.4f}, golden {token} by {margin}, its logit {row[first] - row[token]:.4f} below")
