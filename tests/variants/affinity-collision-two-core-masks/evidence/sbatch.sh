#!/bin/bash
#SBATCH -N1 --ntasks-per-node=4 --cpus-per-task=2 --gres=gpu:l40s:4
srun --cpu-bind=cores python train.py --workers 6
