"""What the kernel's log tells: lines into events, events into findings; for host.kernel_log and the files door."""
