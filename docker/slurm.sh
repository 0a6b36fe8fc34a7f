#!/bin/bash
#SBATCH --job-name=train
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=32

# One task a node; torchrun starts the ranks, hangwatch watches them. The nodes agree on the job by SLURM_JOB_ID.
# The dashboard runs anywhere the nodes can reach:  hangwatch dashboard --host 0.0.0.0 --certificate ... --key ...
set -euo pipefail

export HANGWATCH_DASHBOARD=${HANGWATCH_DASHBOARD:-https://monitor:8470}
# Readable by you alone (chmod 600); a token on the command line would be for all to see.
HANGWATCH_TOKEN=$(cat "${HANGWATCH_TOKEN_FILE:-$HOME/.hangwatch-ingest-token}")
export HANGWATCH_TOKEN

master=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)

srun --kill-on-bad-exit=1 \
    hangwatch run --report-dir "hangwatch-reports/$SLURM_JOB_ID" -- \
    torchrun --nnodes "$SLURM_NNODES" --nproc-per-node "${SLURM_GPUS_PER_NODE:-8}" \
    --rdzv-backend c10d --rdzv-endpoint "$master:29500" --rdzv-id "$SLURM_JOB_ID" \
    train.py "$@"
