#!/usr/bin/env bash
# Builds deploy/Containerfile with buildah on a machine without access to an image registry, on stand-ins for
# the base images made from this machine's node, npm and libraries. The steps of the Containerfile are tested,
# the real base images are not. Run as root; needs buildah (Debian: apt-get install buildah crun). Further
# arguments go to `buildah build`.
#   bash scripts/image-here.sh FOLDER [--build-arg WITH_DATA=1]     FOLDER receives the image storage; the image is named eldr
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:?where the storage of images goes}
shift
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
buildah=(buildah --root "$folder/storage" --runroot "$folder/run" --storage-driver vfs)
version=$(sed -n 's/^ARG NODE=//p' deploy/Containerfile)
node=$(readlink -f "$(command -v node)")
npm=$(dirname "$(dirname "$(readlink -f "$(command -v npm)")")")
# npm uses this machine's CA certificates.
certificates=/etc/ssl/certs/ca-certificates.crt

# Copies a program and its libraries below another root.
put() {
  mkdir -p "$1$(dirname "$3")"
  cp -L "$2" "$1$3"
  { ldd "$2" 2>/dev/null || true; } | grep -o '/[^ ]*' | while read -r library; do
    mkdir -p "$1$(dirname "$library")"
    cp -Ln "$library" "$1$library"
  done
}

base() {
  local root=$1
  mkdir -p "$root"/{tmp,etc/ssl/certs,home/nonroot,proc,sys,dev}
  chmod 1777 "$root/tmp"
  printf 'root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin\n' >"$root/etc/passwd"
  printf 'root:x:0:\nnonroot:x:65532:\n' >"$root/etc/group"
  printf 'hosts: files dns\n' >"$root/etc/nsswitch.conf"
  # Parts of the C library that are loaded on demand (name lookups, native modules), so ldd does not list
  # them.
  for library in /lib/*-linux-gnu/lib{nss_files.so.2,nss_dns.so.2,resolv.so.2,rt.so.1}; do put "$root" "$library" "$library"; done
}

commit() {
  local container
  container=$("${buildah[@]}" from scratch)
  "${buildah[@]}" copy --quiet "$container" "$1" / >/dev/null
  "${buildah[@]}" config "${@:3}" "$container"
  "${buildah[@]}" commit --quiet --rm "$container" "$2" >/dev/null
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
base "$work/build"
put "$work/build" "$node" /usr/local/bin/node
for name in sh env cp mkdir rm find chmod ls; do put "$work/build" "$(command -v "$name")" "/bin/$name"; done
mkdir -p "$work/build/usr/bin" "$work/build/usr/local/lib/node_modules" "$work/build/root"
ln -s /bin/env "$work/build/usr/bin/env"
cp -r "$npm" "$work/build/usr/local/lib/node_modules/npm"
ln -s ../lib/node_modules/npm/bin/npm-cli.js "$work/build/usr/local/bin/npm"
[ ! -f "$certificates" ] || cp -L "$certificates" "$work/build$certificates"
commit "$work/build" "docker.io/library/node:$version-bookworm-slim" --env PATH=/usr/local/bin:/usr/bin:/bin \
  --env "NODE_EXTRA_CA_CERTS=$certificates"

base "$work/run"
put "$work/run" "$node" /nodejs/bin/node
commit "$work/run" "gcr.io/distroless/nodejs$version-debian12:nonroot" --user 65532 --entrypoint '["/nodejs/bin/node"]'

"${buildah[@]}" build --isolation chroot --pull-never --format docker --file deploy/Containerfile --tag eldr "$@" .
"${buildah[@]}" images --format '{{.Name}}:{{.Tag}} {{.Size}}'
