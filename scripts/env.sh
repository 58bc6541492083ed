# Sourced by the other scripts: where builds and downloads are kept, and which Vulkan drivers the tests see.
# Everything can be set from outside; nothing here overrides it.

: "${HOME:=$(getent passwd "$(id -u)" | cut -d: -f6)}"
export HOME
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/twostroke
own_target=$([ -n "${CARGO_TARGET_DIR:-}" ] || echo yes)
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$cache/target}
own_node=$cache/node/bin   # filled by need.sh where the system's Node is missing or too old
export PATH=$own_node:$PATH
mkdir -p "$cache"
cd "$top"

# Checkouts share a build folder of ours, and cargo cannot tell one checkout's crate from another's: where another one built
# last, it would call its binary fresh. Newer time stamps make it look again.
built_here() { # folder
  mkdir -p "$1"
  [ "$(cat "$1/checkout" 2>/dev/null)" = "$top" ] && return 0
  touch src/lib.rs src/main.rs tests/it/main.rs
  printf '%s\n' "$top" >"$1/checkout"
}
[ -z "$own_target" ] || built_here "$CARGO_TARGET_DIR"

say() { printf '\n== %s\n' "$*" >&2; }

# A folder that drivers demand, only for us.
private_runtime_dir() {
  [ -n "${XDG_RUNTIME_DIR:-}" ] && [ -d "$XDG_RUNTIME_DIR" ] && return 0
  export XDG_RUNTIME_DIR=$cache/run
  mkdir -p "$XDG_RUNTIME_DIR"
  chmod 700 "$XDG_RUNTIME_DIR"
}

# First file that exists.
first_file() {
  local f
  for f in "$@"; do [ -f "$f" ] && printf '%s' "$f" && return 0; done
  return 0
}

# The two software drivers, so that a test sees the same adapters on every machine. Unset or set VK_DRIVER_FILES yourself
# to run the tests on your own card.
software_drivers() {
  private_runtime_dir
  [ -n "${VK_DRIVER_FILES:-}${VK_ICD_FILENAMES:-}" ] && return 0
  local lavapipe swiftshader
  lavapipe=$(first_file /usr/share/vulkan/icd.d/lvp_icd*.json)
  swiftshader=$(first_file /usr/lib/chromium/vk_swiftshader_icd.json /usr/lib64/chromium*/vk_swiftshader_icd.json \
    /usr/lib/chromium-browser/vk_swiftshader_icd.json /opt/google/chrome/vk_swiftshader_icd.json)
  [ -z "$lavapipe$swiftshader" ] && return 0
  local both=$lavapipe${lavapipe:+${swiftshader:+:}}$swiftshader
  export VK_DRIVER_FILES=$both VK_ICD_FILENAMES=$both
}
