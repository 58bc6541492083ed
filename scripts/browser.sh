#!/usr/bin/env bash
# Compiles every base-tier shader in a headless Chromium, and with TWOSTROKE_FULL=1 each to a pipeline. The texts come from
# the test `it` (browser_dump), of this build.
set -eu
. "$(dirname "$0")/env.sh"
texts=$CARGO_TARGET_DIR/tmp/wgsl-base.json
cargo test --locked --quiet --test it browser_dump
(cd tests/browser && npm ci --ignore-scripts --no-audit --no-fund --silent)
node tests/browser/compile_wgsl.mjs "$texts" ${TWOSTROKE_FULL:+--all}
