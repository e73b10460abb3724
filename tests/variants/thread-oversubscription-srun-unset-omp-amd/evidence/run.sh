#!/bin/bash
#SBATCH -J vitg-mi300 -N 2 --ntasks-per-node=8 --gpus-per-node=8 --exclusive -t 48:00:00
# 2025-11-20: dropped torchrun, srun starts the ranks directly now
export MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -1)
export MASTER_PORT=29511
export NCCL_SOCKET_IFNAME=bond0
export HSA_FORCE_FINE_GRAIN_PCIE=1
srun --cpu-bind=none --mem-bind=none python -u train_vit.py --cfg vitg.yaml --cpu-aug-in-main
