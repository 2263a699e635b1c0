#!/bin/sh
# Makes docs/plan_page.png anew, the picture of a plan's page: docs/plan_page.sh URL [HEIGHT].
#
# The one that is here is of a transformer layer in f32 on 24 tokens (`block` in tests/support/transformer_blocks.py,
# as text by print_graph, its tensors named in a text editor), after `fuseplan tune layer.fuseplan --seconds 30`.
# Needs chromium and pngquant; `fuseplan serve` on this machine has the page.
set -eu
url=${1:?expected the address of a plan\'s page}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --user-data-dir="$folder/profile" \
  --virtual-time-budget=8000 --window-size="1400,${2:-2860}" --screenshot="$folder/page.png" "$url" 2>/dev/null
pngquant --speed 1 --force --output "$(dirname "$0")/plan_page.png" 48 "$folder/page.png"
