"""Makes the reference ids of this folder with the `sentencepiece` and `tokenizers` packages (pip install both).

usage: make_reference.py OUT_FOLDER SMOLLM2_TOKENIZER_JSON [GEMMA3_GGUF, needs the gguf package]
"""
import json, random, sys, tempfile, os
import sentencepiece as spm
from sentencepiece import sentencepiece_model_pb2 as proto
from tokenizers import Tokenizer

out, smollm2 = sys.argv[1], sys.argv[2]
WORDS = "the of and to in is that it was for on are as with his they at be this from I have or by one had not but what all were when we there can an your which their said if do will each about how up out them then she many some so these would other into has more her two like him see time could no make than first been its who now people my made over did down only way find use may water long little very after words called just where most know".split()
CODE = ["def f(x):\n    return x", "    if a == b:\n        c()\n", "for i in range(10):\n\tprint(i)\n", "x  =  1;   y = 2"]
STRINGS = ["", " ", "  ", "   ", "    ", "a", " a", "  a", "   a", "    a", "hello world", "the water", "a  b   c    d",
    "line one\n  line two\n    line three", "\n  x\n\n    y\n", "\t\ttabs", "trailing  ", "end\n", "▁ mark", "aaaaaaa", "        eight",
    "3.14 and 12,345", "naïve café", "日本の首都は", "\U0001F680 rocket \U0001F469\u200D\U0001F4BB", "e\u0301", "x\u00a0y\u3000z", "\r\n", "zzz",
    "I'll don't WE'RE", "def add(a, b):\n    return a + b\n", "<0x41>", "<unk> <s> </s>", "!!!???", "\u0000\u0001", "\ufeffbom"]

def small(prefix):
    rng = random.Random(7)
    lines = [" ".join(rng.choice(WORDS) for _ in range(12)) for _ in range(600)] + CODE * 20
    with tempfile.TemporaryDirectory() as d:
        text = os.path.join(d, "t.txt")
        open(text, "w").write("\n".join(l.replace("\n", " ") for l in lines))
        spm.SentencePieceTrainer.train(input=text, model_prefix=os.path.join(d, "m"), vocab_size=600, model_type="bpe",
            byte_fallback=True, add_dummy_prefix=prefix, remove_extra_whitespaces=False, allow_whitespace_only_pieces=True,
            normalization_rule_name="identity", character_coverage=1.0, control_symbols=["<|turn|>"], split_by_whitespace=True,
            unk_id=0, bos_id=1, eos_id=2, num_threads=1, minloglevel=2)
        m = proto.ModelProto(); m.ParseFromString(open(os.path.join(d, "m.model"), "rb").read())
        sp = spm.SentencePieceProcessor(model_file=os.path.join(d, "m.model"))
    cases = [{"text": s, "ids": sp.encode(s), "decoded": sp.decode(sp.encode(s))} for s in STRINGS]
    kinds = {1: 1, 2: 2, 3: 3, 4: 4, 5: 5, 6: 6}  # the proto's numbers are GGUF's
    return {"add_space_prefix": prefix, "pieces": [p.piece for p in m.pieces], "scores": [round(p.score, 6) for p in m.pieces],
        "types": [kinds[p.type] for p in m.pieces], "cases": cases}

def write(name, value):
    with open(os.path.join(out, name), "w") as f:
        json.dump(value, f, ensure_ascii=True, separators=(",", ":")); f.write("\n")

write("spm_prefix.json", small(True))
write("spm_plain.json", small(False))

tok = Tokenizer.from_file(smollm2)
extra = STRINGS + ["<|im_start|>user\n<|im_end|>\n", "a<|im_end|>b", "<|im_start", "2024-01-02 03:04:05", "½ ² ٣ 12", "한글 текст עברית"]
write("smollm2_strings.json", [{"text": s, "ids": tok.encode(s, add_special_tokens=False).ids} for s in extra])

if len(sys.argv) > 3:
    from gguf import GGUFReader
    fields = GGUFReader(sys.argv[3]).fields
    get = lambda k: fields["tokenizer.ggml." + k].contents()
    m = proto.ModelProto()
    m.trainer_spec.model_type = 2; m.trainer_spec.byte_fallback = True; m.trainer_spec.unk_id = 3
    m.trainer_spec.bos_id = 2; m.trainer_spec.eos_id = 1; m.trainer_spec.pad_id = 0
    m.normalizer_spec.add_dummy_prefix = False; m.normalizer_spec.remove_extra_whitespaces = False
    m.normalizer_spec.escape_whitespaces = True; m.normalizer_spec.name = "identity"
    for i, (t, s, k) in enumerate(zip(get("tokens"), get("scores"), get("token_type"))):
        p = m.pieces.add(); p.piece = t.replace(" ", "▁"); p.score = s; p.type = 2 if i == 3 else k
    sp = spm.SentencePieceProcessor(model_proto=m.SerializeToString())
    write("gemma3_strings.json", [{"text": s, "ids": sp.encode(s)} for s in STRINGS + ["  \n   \n\n\n x", "the quick brown fox, 12 dogs"]])
