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
