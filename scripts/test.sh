#!/usr/bin/env bash
# usage: test.sh [full]    all tests; with `full` the longer suites too. Prints what each phase took.
# REQUIRE_GPU=1 makes a missing adapter, browser or wasm target a failure instead of a line that says SKIP.
set -u
. "$(dirname "$0")/env.sh"
full=${1:-}
[ "$full" = full ] && export TWOSTROKE_FULL=1 TEST_SECONDS_MAX=${TEST_SECONDS_MAX:-10800}
export TWOSTROKE_FIXTURES=${TWOSTROKE_FIXTURES:-$cache/fixtures}

failed=()
report=()
phase() { # name, command...
  local name=$1 start=$SECONDS status=0
  shift
  say "$name"
  "$@" || status=$?
  local took=$((SECONDS - start)) mark=ok
  if [ $status -ne 0 ]; then mark=FAILED; failed+=("$name"); fi
  report+=("$(printf '%-34s %2d:%02d  %s' "$name" $((took / 60)) $((took % 60)) "$mark")")
  return $status
}
end() {
  say "phases (minutes:seconds)"
  printf '%s\n' "${report[@]}" "$(printf '%-34s %2d:%02d' all $((SECONDS / 60)) $((SECONDS % 60)))" >&2
  [ ${#failed[@]} -eq 0 ] || { echo "FAILED: ${failed[*]}" >&2; exit 1; }
  exit 0
}

tools() {
  scripts/need.sh cc || return 1
  scripts/need.sh lavapipe browser node pip wasm && return 0
  [ -z "${REQUIRE_GPU:-}" ] && { echo "Going on without; what needs them prints SKIP." >&2; return 0; }
  return 1
}
model() {
  "$CARGO_TARGET_DIR/debug/twostroke" fetch && return 0
  [ -z "${REQUIRE_GPU:-}" ] && { echo "SKIP the default model can't be fetched: its goldens are not checked" >&2; return 0; }
  return 1
}
# A test that hangs must not take the whole run with it without a word of which it was.
tests() {
  local log status=0
  log=$(mktemp)
  timeout --kill-after=10 "${TEST_SECONDS_MAX:-2700}" cargo test --locked -- ${full:+--skip $soak} 2>&1 | tee "$log"
  status=${PIPESTATUS[0]}
  if [ "$status" -eq 124 ] || [ "$status" -eq 137 ]; then
    echo "Not at an end after ${TEST_SECONDS_MAX:-2700} s (TEST_SECONDS_MAX). Tests that had begun a minute ago and not ended:" >&2
    sed -nE 's/^test (.*) has been running for over 60 seconds$/\1/p' "$log" | while read -r name; do
      grep -qE "^test $name \.\.\. " "$log" || echo "  $name" >&2
    done
  fi
  rm -f "$log"
  return "$status"
}
# Of the longer suites, the hour of mixed load waits most of its time, and the browser's every shader works on one core: both
# go beside everything else.
soak=memory_and_pages_are_flat_under_mixed_load
soak() {
  timeout --kill-after=10 5400 cargo test --locked --test it -- "$soak" | tee /dev/stderr | grep "^test result: ok. 1 passed" >/dev/null
}
beside() { # command...: starts it; what it says is kept for `end_beside`
  beside_log=$(mktemp)
  "$@" >"$beside_log" 2>&1 &
  beside_job=$!
}
end_beside() { # job, log
  local status=0
  wait "$1" || status=$?
  cat "$2"
  rm -f "$2"
  return "$status"
}
sdk() {
  scripts/need.sh pip || { echo "SKIP no pip" >&2; [ -z "${REQUIRE_GPU:-}" ]; return; }
  scripts/sdk.sh
}
wasm() {
  scripts/need.sh wasm || { echo "SKIP no wasm32 target" >&2; [ -z "${REQUIRE_GPU:-}" ]; return; }
  scripts/wasm.sh
}
browser() {
  scripts/need.sh browser node || { echo "SKIP no browser" >&2; [ -z "${REQUIRE_GPU:-}" ]; return; }
  scripts/browser.sh
}

phase "tools" tools || end
software_drivers
phase "build" cargo test --locked --no-run || end
phase "model" model
[ "$full" = full ] && phase "fixtures of the long suites" scripts/fixtures.sh
if [ "$full" = full ]; then
  beside soak; soak_job=$beside_job soak_log=$beside_log
  beside browser; browser_job=$beside_job browser_log=$beside_log
fi
phase "cargo test" tests
phase "OpenAI's client" sdk
phase "library for wasm32" wasm
if [ "$full" = full ]; then
  phase "shaders in a browser, beside these" end_beside "$browser_job" "$browser_log"
  phase "an hour of mixed load, beside these" end_beside "$soak_job" "$soak_log"
else
  phase "shaders in a browser" browser
fi
end
