# Sourced: a root directory of Debian 12 in build/node-root, in which node-programs and release
# build. Whatever is installed in it, the machine's own packages and architectures stay as they are.

# can_build_here: whether this machine can have one.
can_build_here() {
  [ "$(uname)" = Linux ] && [ "$(id -u)" -eq 0 ] && command -v debootstrap >/dev/null
}

# make_build_root SOURCE [refresh]: makes it where it is not yet, or where the list of its packages
# has changed; with refresh, installs the newest versions of them. Copies the sources into it, and
# holds its lock until the script ends. Sets build_root.
make_build_root() {
  local source_dir=$1 wanted mirror
  build_root=$source_dir/build/node-root
  mkdir -p "$source_dir/build"
  exec 9> "$source_dir/build/node-root.lock"
  flock 9
  # shellcheck source=deploy/packages.sh
  source "$source_dir/deploy/packages.sh"
  wanted=$({ uname -m; debian_packages node; debian_packages node-cross; debian_packages client; } |
    sha256sum)
  if [ "$(cat "$build_root/made" 2>/dev/null)" != "$wanted" ]; then
    if [ ! -f "$build_root/based" ]; then
      rm -rf "$build_root"
      debootstrap --variant=minbase bookworm "$build_root"
      mirror=$(awk '$1 == "deb" { print $2; exit }' "$build_root/etc/apt/sources.list")
      printf 'deb %s main\n' "$mirror bookworm" "$mirror bookworm-updates" \
        "$mirror-security bookworm-security" > "$build_root/etc/apt/sources.list"
      case $(uname -m) in
        x86_64) chroot "$build_root" dpkg --add-architecture arm64 ;;
        *) chroot "$build_root" dpkg --add-architecture amd64 ;;
      esac
      touch "$build_root/based"
    fi
    mkdir -p "$build_root/packages"
    cp "$source_dir/deploy/packages.sh" "$build_root/packages/"
    chroot "$build_root" bash /packages/packages.sh node node-cross client
    chroot "$build_root" apt-get clean
    echo "$wanted" > "$build_root/made"
  fi
  if [ "${2:-}" = refresh ]; then
    chroot "$build_root" apt-get update -q
    chroot "$build_root" env DEBIAN_FRONTEND=noninteractive apt-get upgrade -q -y
    chroot "$build_root" apt-get clean
  fi
  rm -rf "$build_root/src" "$build_root/out"
  mkdir -p "$build_root/src" "$build_root/out" "$build_root/build" "$build_root/ccache"
  gpuctl_sources "$source_dir" | tar -C "$source_dir" --null -T - -cf - |
    tar -xf - -C "$build_root/src"
}

# run_in_build_root SCRIPT [ARGUMENT…]: runs a script with bash in it, with SOURCE_DATE_EPOCH.
run_in_build_root() {
  chroot "$build_root" env CCACHE_DIR=/ccache SOURCE_DATE_EPOCH="$SOURCE_DATE_EPOCH" \
    TZ=UTC LC_ALL=C.UTF-8 bash "$@"
}
