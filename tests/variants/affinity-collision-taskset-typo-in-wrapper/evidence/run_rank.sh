#!/bin/bash
# wrapper per local rank, NCCL_SET_THREAD_NAME=1 so that we can see the threads
export NCCL_SET_THREAD_NAME=1
case $LOCAL_RANK in
 0) M=0-15 ;;
 1) M=16-31 ;;
 2) M=32-33 ;;   # numa 0, upper third
 3) M=48-63 ;;
esac
exec taskset -c $M python -u train.py "$@"
