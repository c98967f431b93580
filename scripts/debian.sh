# Sourced by the scripts that install tools for the suites.

# need_packages OTHERWISE PACKAGE…: installs Debian packages; without apt-get prints OTHERWISE and fails.
need_packages() {
  local otherwise=$1 sudo=""
  shift
  if ! command -v apt-get >/dev/null; then
    echo "$otherwise" >&2
    return 1
  fi
  [ "$(id -u)" = 0 ] || sudo="sudo"
  $sudo apt-get update -qq
  $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$@" >/dev/null
}

# unpack_package NAME: downloads a Debian package and unpacks it under $cache/NAME without installing it.
# Needs root only to fetch package lists. The sourcing script sets $cache.
unpack_package() {
  local name=$1 folder=$cache/$1 fresh
  if ! command -v apt-get >/dev/null || ! command -v dpkg-deb >/dev/null; then
    echo "No $name found, and no apt-get to fetch it: install it on the PATH." >&2
    return 1
  fi
  mkdir -p "$cache"
  fresh=$(mktemp -d "$cache/$name.XXXXXX")
  if ! (cd "$fresh" && apt-get download -qq "$name" >/dev/null 2>&1); then
    local sudo=""
    [ "$(id -u)" = 0 ] || sudo="sudo"
    $sudo apt-get update -qq
    (cd "$fresh" && apt-get download -qq "$name")
  fi
  dpkg-deb -x "$fresh"/*.deb "$fresh"
  rm -rf "$fresh"/*.deb "$folder"
  mv "$fresh" "$folder"
}
