#!/usr/bin/env bash
# Compiles every base-tier shader in a headless Chromium. The texts come from the test `it` (browser_dump).
set -eu
. "$(dirname "$0")/env.sh"
texts=$CARGO_TARGET_DIR/tmp/wgsl-base.json
[ -f "$texts" ] || cargo test --locked --test it browser_dump
(cd tests/browser && npm ci --ignore-scripts --no-audit --no-fund --silent)
node tests/browser/compile_wgsl.mjs "$texts"
