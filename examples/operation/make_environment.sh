#!/bin/sh
# Writes tilewright.env for compose.yaml: a new password, for the database and for its clients.
# Readable by its owner alone; one that is there already is left as it is.
set -eu
cd "$(dirname "$0")"
umask 077
password=$(od -An -N24 -tx1 /dev/urandom | tr -d ' \n')
set -C
cat >tilewright.env <<END
POSTGRES_PASSWORD=$password
TILEWRIGHT_DB=postgresql://tilewright:$password@database/tilewright
END
