#!/usr/bin/env bash
# This engine and llama.cpp on the same file, one after the other in one run; writes the tables of benches/README.md and
# README.md. PP and TG set the prompt's and the answer's length, REPEAT the rounds.
set -eu
. "$(dirname "$0")/env.sh"
scripts/need.sh cc vulkan node pip
private_runtime_dir

cargo build --release --locked
model=$("$CARGO_TARGET_DIR/release/twostroke" fetch)

peer=$cache/peer
mkdir -p "$peer"
if [ "$(uname -sm)" = "Linux x86_64" ]; then
  if [ ! -d "$peer/node_modules/@node-llama-cpp/linux-x64-vulkan" ]; then
    say "Installing the peer: llama.cpp, prebuilt in node-llama-cpp"
    version=3.22.1
    (cd "$peer" && { [ -f package.json ] || npm init -y >/dev/null; } && npm i --ignore-scripts --no-audit --no-fund --silent \
      "node-llama-cpp@$version" "@node-llama-cpp/linux-x64@$version" "@node-llama-cpp/linux-x64-vulkan@$version")
  fi
else
  echo "The peer's prebuilt binaries are taken for Linux x86_64 only: its rows stay empty here." >&2
  peer=
fi
node benches/compare.mjs "$CARGO_TARGET_DIR/release/twostroke" "$model" "$peer"
