#!/usr/bin/env bash
# The app's tests: its rules, its controls by label, its pictures drawn on lavapipe. Longer than 20 minutes is a hang.
set -eu
. "$(dirname "$0")/env.sh"
start=$SECONDS
scripts/need.sh cc
if ! scripts/need.sh lavapipe; then
  [ -n "${REQUIRE_GPU:-}" ] && exit 1
  echo "SKIP no lavapipe: the app's pictures are not checked" >&2
  exit 0
fi
if ! scripts/need.sh display pip; then
  [ -n "${REQUIRE_GPU:-}" ] && exit 1
  echo "Going on without a display: what needs a window prints SKIP." >&2
fi
private_runtime_dir
# Pictures are compared with lavapipe's.
lavapipe=$(first_file /usr/share/vulkan/icd.d/lvp_icd*.json)
[ -z "$lavapipe" ] || export VK_DRIVER_FILES=$lavapipe VK_ICD_FILENAMES=$lavapipe
say "build of the app's tests"
cargo test --locked -p twostroke-app --no-run
say "the default model"
# As the root's tests build it: with other features it would be compiled anew.
cargo test --locked --quiet --no-run --test it
"$CARGO_TARGET_DIR/debug/twostroke" fetch || [ -z "${REQUIRE_GPU:-}" ]
say "tests of the app"
timeout --kill-after=10 1200 cargo test --locked -p twostroke-app
say "$(printf 'the app took %d:%02d' $(((SECONDS - start) / 60)) $(((SECONDS - start) % 60)))"
