#!/usr/bin/env bash
# Runs once, when Gradescope builds the autograder's image. Beside it: ddpkit.zip, the course's checkout.
set -euo pipefail
apt-get update -qq
apt-get install -y -qq --no-install-recommends bubblewrap libseccomp2 unzip python3 python3-venv >/dev/null
python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
  echo "ddpkit needs Python 3.11: choose a base image that has it, Ubuntu 24.04 for example." >&2
  exit 1
}
unzip -q /autograder/source/ddpkit.zip -d /opt/ddpkit
python3 -m venv /opt/venv
/opt/venv/bin/python -m pip install -q -c /opt/ddpkit/constraints.txt -e /opt/ddpkit
chmod go= /opt/ddpkit # where bwrap is refused, students' code runs as another user
