#!/usr/bin/env bash
# The two strokes, once: builds, fetches the default model, streams an answer and its figures.
set -eu
. "$(dirname "$0")/env.sh"

scripts/need.sh cc
scripts/need.sh vulkan || echo "Going on; without a driver the program will say so." >&2
scripts/need.sh pip || true
private_runtime_dir

say "Building (the first time takes minutes, nearly all of it other people's code)"
cargo build --release --locked
twostroke=$CARGO_TARGET_DIR/release/twostroke

say "Fetching the default model"
model=()
if ! "$twostroke" fetch >&2; then
  echo "The default model can't be fetched here. What answers now is the 7 MB toy inside the binary: fluent nonsense." >&2
  model=(--model toy)
fi

prompt=${PROMPT:-In two sentences: why is the sky blue?}
say "twostroke run ${model[*]:-} -p '$prompt' --max-tokens 96"
"$twostroke" run ${model[@]+"${model[@]}"} -p "$prompt" --max-tokens 96
