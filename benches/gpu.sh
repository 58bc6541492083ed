#!/usr/bin/env bash
# Measures this machine's adapter once, for the table of benches/README.md: limits, prefill and decode of SmolLM2-135M on both tiers,
# with bytes for activations and for K and V, over the batch and over the context; then models of 1B and 8B with random weights, which
# nobody has to download. Some minutes on a card. Writes a line of JSON a run: {"command": …, "result": …}.
#
# usage: benches/gpu.sh [DEVICE] [OUT.jsonl]      DEVICE: as `--device` takes it; absent: the best there is
#        TESTS=1: the test suite on every adapter first      SIZES="1B 8B"      BIN=twostroke: no build
set -euo pipefail
cd "$(dirname "$0")/.."
device=${1-}; out=${2-gpu.jsonl}
target=${CARGO_TARGET_DIR:-$HOME/.cache/twostroke/target}
if [ -z "${BIN-}" ]; then
  CARGO_TARGET_DIR=$target cargo build --release
  BIN=$target/release/twostroke
fi
flags=(); [ -z "$device" ] || flags=(--device "$device")
: > "$out"

# Runs the program with --json's like and adds a line; a run that fails is a line too, and the others go on.
measure() {
  echo "twostroke $*" >&2
  local json status=0
  json=$("$BIN" "$@" "${flags[@]}" 2> >(tail -n 3 >&2)) || status=$?
  if [ "$status" = 0 ] && [ -n "$json" ]; then
    printf '{"command": "%s", "result": %s}\n' "$*" "$(printf '%s' "$json" | tr '\n' ' ')" >> "$out"
  else
    printf '{"command": "%s", "failed": %s}\n' "$*" "$status" >> "$out"
  fi
}

if [ -n "${TESTS-}" ]; then
  if CARGO_TARGET_DIR=$target cargo test; then printf '{"command": "cargo test", "result": "passed"}\n' >> "$out"
  else printf '{"command": "cargo test", "failed": 1}\n' >> "$out"; fi
fi
"$BIN" fetch >&2
json=$("$BIN" devices --json | tr '\n' ' '); printf '{"command": "devices --json", "result": %s}\n' "$json" >> "$out"
bench=(bench -r 3 -o json)
measure "${bench[@]}" -p 128,512 -n 64
measure "${bench[@]}" -p 512 -n 64 --activations int8
measure "${bench[@]}" -p 512 -n 64 --tier base
measure "${bench[@]}" -p 0 -n 32 -d 64 --parallel 1,8,32,128
measure "${bench[@]}" -p 512 -n 32 -d 4096 --kv-type f16
measure "${bench[@]}" -p 512 -n 32 -d 4096 --kv-type q8
measure "${bench[@]}" -p 512 -n 64 --tune full
measure bench -o json -p 512 -n 1 --kernels
for size in ${SIZES-1B 8B}; do
  measure "${bench[@]}" -p 512 -n 64 --model "random:$size"
  measure "${bench[@]}" -p 512 -n 64 --model "random:$size" --activations int8
  measure bench -o json -p 512 -n 1 --kernels --model "random:$size"
done
echo "$out" >&2
