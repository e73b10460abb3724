"""The machine itself: readers of the kernel's files and of tools, facts and findings."""
