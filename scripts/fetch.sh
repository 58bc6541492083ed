#!/usr/bin/env bash
# Fetches the default model into the cache and prints its path.
set -eu
. "$(dirname "$0")/env.sh"
scripts/need.sh cc pip
cargo build --release --locked
"$CARGO_TARGET_DIR/release/twostroke" fetch
