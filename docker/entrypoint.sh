#!/bin/sh
# What a container runs first: gives libpq the database's password, then becomes the command.
#
# PGPASSWORD_FILE names the file that holds it, a secret of compose: so it stands in no address, no log and no image.
set -eu
if [ -n "${PGPASSWORD_FILE-}" ]; then
  PGPASSWORD=$(cat -- "$PGPASSWORD_FILE")
  export PGPASSWORD
  unset PGPASSWORD_FILE
fi
exec "$@"
