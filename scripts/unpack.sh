#!/usr/bin/env bash
# Unpack packages of another Debian release, and all that they depend on, into a folder. Nothing is installed: a program
# from there runs in a mount namespace that shows FOLDER/usr as /usr. Needs root and apt.
#
#   scripts/unpack.sh trixie FOLDER postgresql-17
set -euo pipefail
release=$1 folder=$2
shift 2

if [ -d "$folder" ]; then exit; fi
mkdir -p "$(dirname "$folder")"
work=$(mktemp -d "$folder.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/lists/partial" "$work/archives/partial"
: >"$work/status"

# The archive that this machine installs from, at the other release.
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' | head -n 1)
[ -n "$mirror" ] || { echo "apt has no list of a Debian archive: run apt-get update" >&2; exit 1; }
keys=/usr/share/keyrings/debian-archive-keyring.gpg
echo "deb [signed-by=$keys] $mirror $release main" >"$work/sources.list"

apt() {
  timeout 1800 apt-get -qq \
    -o Dir::Etc::SourceList="$work/sources.list" -o Dir::Etc::SourceParts=/dev/null \
    -o Dir::Etc::Preferences=/dev/null -o Dir::Etc::PreferencesParts=/dev/null \
    -o Dir::State::Lists="$work/lists" -o Dir::State::Status="$work/status" -o Dir::Cache="$work" \
    -o APT::Sandbox::User=root -o APT::Install-Recommends=false -o Acquire::Retries=3 -o Acquire::Check-Valid-Until=false \
    "$@"
}

apt update
apt install --download-only -y dash coreutils util-linux mount "$@"

# Older releases still have /bin and /lib beside /usr.
root=$work/root
for each in bin sbin lib lib64; do
  mkdir -p "$root/usr/$each"
  ln -s "usr/$each" "$root/$each"
done
for package in "$work"/archives/*.deb; do
  dpkg-deb --fsys-tarfile "$package" | tar -x --keep-directory-symlink -C "$root"
done
mv "$root" "$folder"
