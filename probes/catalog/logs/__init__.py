"""What a job's log tells: lines into events, events into findings. For rank.log and the files door."""
