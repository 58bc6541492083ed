#!/usr/bin/env bash
# The desktop program. TRACE=FILE opens a trace.
set -eu
. "$(dirname "$0")/env.sh"

scripts/need.sh cc
scripts/need.sh vulkan || echo "Going on; without a driver the program will say so." >&2
say "Building (the first time takes minutes, nearly all of it other people's code)"
cargo build --release --locked -p twostroke-app
if [ "$(uname -s)" = Linux ] && [ -z "${DISPLAY:-}${WAYLAND_DISPLAY:-}" ]; then
  echo "Built: $CARGO_TARGET_DIR/release/twostroke-app. There is no display here to start it on." >&2
  exit 0
fi
exec "$CARGO_TARGET_DIR/release/twostroke-app" ${TRACE:+"$TRACE"}
