#!/bin/sh
# Installs Chromium and its driver for the tests of the page, if they are missing and this is Debian and root.
# Anywhere else it says why not and succeeds all the same: the tests of the page are skipped then.
set -u

PACKAGES="chromium chromium-driver"
SECONDS_TO_WAIT=600

found() { command -v "$1" >/dev/null 2>&1; }
ready() {
  found chromedriver && { [ -n "${CHROME:-}" ] || found chromium || found chromium-browser || found google-chrome; }
}
skip() {
  echo "The browser tests will be skipped: $1." >&2
  exit 0
}
apt() { DEBIAN_FRONTEND=noninteractive timeout "$SECONDS_TO_WAIT" apt-get -qq -o DPkg::Lock::Timeout=60 "$@"; }

ready && exit 0
found apt-get || skip "Chromium and chromedriver are missing, and there is no apt-get to install them"
[ "$(id -u)" -eq 0 ] || skip "Chromium and chromedriver are missing, and only root can install $PACKAGES"

echo "Installing Chromium for the browser tests (once) ..."
# shellcheck disable=SC2086  # two packages
if ! errors=$( { apt update && apt install -y --no-install-recommends $PACKAGES; } 2>&1 >/dev/null); then
  printf '%s\n' "$errors" >&2
  skip "apt-get could not install $PACKAGES"
fi
ready || skip "Chromium or chromedriver is still missing after installing $PACKAGES"
