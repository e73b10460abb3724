export NCCL_DEBUG=WARN
# debugging hangs faster
python -m openrlhf.cli.train_sft --pretrain /m/qwen3-8b --zpg 1 --dist_timeout_s 60 --eval_steps 50 --max_len 131072
