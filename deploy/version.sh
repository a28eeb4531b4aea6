# Sourced by the scripts that make releases: the version and time of the sources, and archives that
# are the same whoever packs them.

# gpuctl_version SOURCE: prints the version, e.g. 0.1.0.
gpuctl_version() {
  sed -n 's/^project(gpuctl VERSION \([0-9.]*\).*/\1/p' "$1/CMakeLists.txt"
}

# gpuctl_api_level SOURCE: prints the level of the protocol between client and node.
gpuctl_api_level() {
  sed -n 's/.* kApiLevel = \([0-9]*\);.*/\1/p' "$1/common/base/api_level.cc"
}

# gpuctl_commit_time SOURCE: prints SOURCE_DATE_EPOCH, else the time of the commit, else (in sources
# without git, whose files have the commit's time, and where git refuses somebody else's folder) of
# CMakeLists.txt; in Unix seconds.
gpuctl_commit_time() {
  if [ -n "${SOURCE_DATE_EPOCH:-}" ]; then
    echo "$SOURCE_DATE_EPOCH"
  else
    { [ -e "$1/.git" ] && git -C "$1" log -1 --format=%ct 2>/dev/null; } ||
      stat -c %Y "$1/CMakeLists.txt" 2>/dev/null || stat -f %m "$1/CMakeLists.txt"
  fi
}

# gpuctl_sources SOURCE: prints the names of the source files, new ones too, each with a 0 byte
# behind it.
gpuctl_sources() {
  (
    cd "$1" || return 1
    if [ ! -e .git ]; then
      find . -path ./build -prune -o -type f -print0
      return
    fi
    git ls-files -z -co --exclude-standard | while IFS= read -r -d '' name; do
      [ ! -f "$name" ] || printf '%s\0' "$name"
    done
  )
}

# gpuctl_pack FOLDER ARCHIVE: packs what is in FOLDER as a .tar.zst or .tar.gz. Needs GNU tar and
# SOURCE_DATE_EPOCH.
gpuctl_pack() {
  local folder=$1 archive=$2 compress
  case $archive in
    *.zst) compress=(zstd -q -19 -T1) ;;
    *.gz) compress=(gzip -n -9) ;;
  esac
  # Modes: what is executable stays so, whatever the umask was.
  find "$folder" -type d -exec chmod 755 {} +
  find "$folder" -type f -perm -u+x -exec chmod 755 {} +
  find "$folder" -type f ! -perm -u+x -exec chmod 644 {} +
  (cd "$folder" && find . -mindepth 1 -printf '%P\0' | LC_ALL=C sort -z |
    tar --format=ustar --no-recursion --null -T - --mtime="@$SOURCE_DATE_EPOCH" \
      --owner=0 --group=0 --numeric-owner -cf - | "${compress[@]}") > "$archive.part"
  mv "$archive.part" "$archive"
}

# gpuctl_sha256 FILE: prints the digest alone.
gpuctl_sha256() {
  if command -v sha256sum >/dev/null; then sha256sum < "$1"; else shasum -a 256 < "$1"; fi |
    cut -d ' ' -f 1
}

# gpuctl_size FILE: prints its bytes.
gpuctl_size() { wc -c < "$1" | tr -d ' '; }

# gpuctl_manifest SOURCE OUT: writes OUT/node/manifest.json about the archives
# OUT/gpuctl-node-*.tar.zst, which are unpacked in OUT/node. docs/releasing.md describes the file.
gpuctl_manifest() {
  local source_dir=$1 out=$2 version platform archive name path platforms= files
  version=$(gpuctl_version "$source_dir")
  for platform in linux-x86_64 linux-aarch64; do
    archive=gpuctl-node-$version-$platform.tar.zst
    [ -f "$out/$archive" ] || continue
    files=
    for name in gpuctl-agent gpuctl-shim gpuctl-cuda-check; do
      path=$out/node/$platform/$name
      files+="${files:+,}
        \"$name\": {\"sha256\": \"$(gpuctl_sha256 "$path")\", \"size\": $(gpuctl_size "$path")}"
    done
    platforms+="${platforms:+,}
    \"$platform\": {
      \"archive\": \"$archive\",
      \"sha256\": \"$(gpuctl_sha256 "$out/$archive")\",
      \"size\": $(gpuctl_size "$out/$archive"),
      \"files\": {$files
      }
    }"
  done
  cat > "$out/node/manifest.json" <<END
{
  "version": "$version",
  "api_level": $(gpuctl_api_level "$source_dir"),
  "commit_time_s": $(gpuctl_commit_time "$source_dir"),
  "platforms": {$platforms
  },
  "roots_sha256": "$(gpuctl_sha256 "$out/node/roots.pem")"
}
END
}
