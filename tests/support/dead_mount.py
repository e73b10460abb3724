"""A file system whose server stops answering, as a hard NFS mount does whose server is gone: FUSE, spoken by hand.

Until the flag file exists it answers: a folder with one file, `train.log`. From then on it takes requests and answers
none, so who asks sleeps in the kernel, and not even SIGKILL ends that: request_wait_answer() of fs/fuse/dev.c. Ending
the program releases all. It is mounted in the namespace in which the program runs, never in that of this machine.

Source   include/uapi/linux/fuse.h: struct fuse_in_header, fuse_init_out, fuse_attr, fuse_entry_out, fuse_open_out
"""

from __future__ import annotations

from pathlib import Path

PYTHON = "/usr/bin/python3"  # the node's own: its /root is not this machine's
PROGRAM = r"""
import ctypes, errno, os, stat, struct, sys
place, flag = sys.argv[1:3]
fuse = os.open("/dev/fuse", os.O_RDWR)
libc = ctypes.CDLL(None, use_errno=True)
options = "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other" % fuse
if libc.mount(b"gone:/export", place.encode(), b"fuse.nfs", 0, options.encode()):
    sys.exit(os.strerror(ctypes.get_errno()))
def attributes(node):
    mode = stat.S_IFDIR | 0o755 if node == 1 else stat.S_IFREG | 0o644
    return struct.pack("=6Q10I", node, 4096, 8, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)
while True:
    asked = os.read(fuse, 1 << 20)
    length, op, unique, node = struct.unpack_from("=IIQQ", asked)
    if os.path.exists(flag) or op in (2, 42):  # FORGET takes no answer
        continue
    error, answer = 0, b""
    if op == 26:  # INIT: major, minor, max_readahead, flags, max_background, congestion_threshold, max_write
        answer = struct.pack("=4I2HI", 7, 31, 65536, 0, 16, 12, 65536) + bytes(36)
    elif op in (3, 4):  # GETATTR, SETATTR
        answer = struct.pack("=QII", 0, 0, 0) + attributes(node)
    elif op == 1 and asked[40:].rstrip(b"\0") == b"train.log":  # LOOKUP
        answer = struct.pack("=4Q2I", 2, 0, 0, 0, 0, 0) + attributes(2)
    elif op in (14, 27):  # OPEN, OPENDIR
        answer = struct.pack("=QII", 1, 1, 0)
    elif op == 16:  # WRITE
        answer = struct.pack("=II", struct.unpack_from("=I", asked, 40 + 16)[0], 0)
    elif op in (18, 25, 29):  # RELEASE, FLUSH, RELEASEDIR
        pass
    else:
        error = -errno.ENOENT if op == 1 else -errno.ENOSYS
    os.write(fuse, struct.pack("=IiQ", 16 + len(answer), error, unique) + answer)
"""


def shell(place: Path, program: Path, flag: Path) -> str:
    """Shell lines that mount it on `place` in the present namespace, and go on when it is there."""
    program.write_text(PROGRAM)
    place.mkdir(parents=True, exist_ok=True)
    mounted = f"grep -q ' {place} fuse.nfs ' /proc/self/mounts"
    return f"{PYTHON} -I -S {program} {place} {flag} &\nuntil {mounted}; do sleep 0.02; done"
