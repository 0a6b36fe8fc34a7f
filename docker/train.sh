#!/bin/sh
# One node of the demonstration: two gloo ranks under torchrun, watched. FAULT is a script of hangwatch's gallery
# without its .py; FAULT_ARGS are its options (--healthy lets it finish).
set -eu

case ${FAULT:-uneven_steps} in
*[!a-z0-9_]*) echo "train: FAULT is a name such as uneven_steps" >&2; exit 2 ;;
esac
gallery=$(python -c 'import pathlib, hangwatch.gallery as g; print(pathlib.Path(g.__file__).parent)')
script=$gallery/${FAULT:-uneven_steps}.py
[ -f "$script" ] || { echo "train: no such fault; there are: $(cd "$gallery" && echo [a-z]*.py | sed 's/\.py//g')" >&2; exit 2; }

# shellcheck disable=SC2086 - the options are words of their own
exec hangwatch run --report-dir "$HOME/reports" -- torchrun \
    --nnodes "${NODES:-2}" --nproc-per-node "${RANKS:-2}" \
    --rdzv-backend c10d --rdzv-endpoint "${MASTER:-node-a}:29400" --rdzv-id "${RUN_ID:-demonstration}" \
    "$script" ${FAULT_ARGS:-}
