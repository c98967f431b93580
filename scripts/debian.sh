# Sourced by the scripts that get tools for the suites.

# need_packages OTHERWISE PACKAGE…: installs packages of Debian; without apt-get says what to do in their place, and fails.
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

# unpack_package NAME: fetches a package of Debian and unpacks it under $cache/NAME, without installing it: needs no root unless package
# lists have to be fetched. The script that sources this sets $cache.
unpack_package() {
  local name=$1 folder=$cache/$1 fresh
  if ! command -v apt-get >/dev/null || ! command -v dpkg-deb >/dev/null; then
    echo "No $name found, and no apt-get to fetch it with: install it, so that it is on the PATH." >&2
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
