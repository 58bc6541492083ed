#!/usr/bin/env python3
"""Write embedding.json into each folder of tiny/: the mean of transformers' last hidden states over golden.json's ids, f32.

needs: pip install torch transformers
"""
import json, pathlib
import torch, transformers

for folder in sorted(p.parent for p in (pathlib.Path(__file__).parent / "tiny").glob("*/golden.json")):
    model = transformers.AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    ids = json.loads((folder / "golden.json").read_text())["ids"]
    with torch.no_grad():
        mean = model(torch.tensor([ids])).last_hidden_state[0].double().mean(0)
    golden = {"transformers": transformers.__version__, "mean": [float(f"{x:.8g}") for x in mean.tolist()]}
    (folder / "embedding.json").write_text(json.dumps(golden) + "\n")
    print(folder.name, len(ids), "tokens,", len(golden["mean"]), "wide")
