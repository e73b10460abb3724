py-spy record --gil -f raw -d 30 -o rank0_gil.collapsed --pid 20418
py-spy> Sampling process 100 times a second for 30 seconds. Press Control-C to exit.
py-spy> Wrote raw flamegraph data to 'rank0_gil.collapsed'. Samples: 2921 Errors: 0
for comparison rank 1 (pid 20419), same command: Samples: 401 Errors: 0
