"""Errors of CUDA and ROCm, as torch, their runtimes, their tools and other libraries write them.

Source   torch (c10/cuda), cudaGetErrorString, hipGetErrorString, Triton, compute-sanitizer, cuda-gdb, ROCR
Units    none
Shape    SHAPES, see _log_shapes.py
Errors   none
"""

from __future__ import annotations

from probes.catalog.logs.shapes import shape

SHAPES = (
    shape(
        "cuda_error",
        "out of memory",
        r"(?P<name>(?:CUDA|HIP|GPU|device) out of memory)\b"
        r"(?:\W{1,3}[Tt]ried to allocate (?P<asked>[\d.]{1,12} \w{1,5}))?",
    ),
    shape("cuda_error", " error: ", r"(?:CUDA|HIP) (?:driver )?error: (?P<name>[\w (),'/:-]{3,160})"),
    shape("cuda_error", "cudaGetDeviceCount", r"Error (?P<code>\d{1,4}): (?P<name>[\w ,'-]{3,100})"),
    shape("cuda_error", "driver on your system", r"(?P<name>driver on your system is too old) \(found version"),
    shape(
        "cuda_error",
        "requirement error",
        r"nvidia-container-cli: requirement error: (?P<name>unsatisfied condition: [\w<>=., ]{3,80})",
    ),
    shape("cuda_error", "GPU is lost", r"(?P<name>GPU is lost)"),
    shape("cuda_error", "Out of memory while", r"(?P<name>Out of memory) while (?:trying to allocate|allocating)"),
    shape("cuda_error", "OUT_OF_MEMORY", r"(?P<name>(?:CUDA_ERROR|HSA_STATUS_ERROR)_OUT_OF_(?:MEMORY|RESOURCES))"),
    shape("cuda_error", "OutOfMemory", r"(?P<name>(?:cudaError|hipError)(?:Memory|OutOfMemory)\w{0,12})"),
    shape("cuda_error", "OutOfMemoryError", r"torch\.(?:cuda\.)?(?P<name>OutOfMemoryError)\b"),
    shape("cuda_error", "OOM when allocating", r"(?P<name>OOM when allocating) tensor"),  # TensorFlow
    shape(
        "cuda_error", "ut of memory", r"(?i:\b(?:cuda|hip)\w{0,24}\b[^\n]{0,60}?(?<!host )(?P<name>out of memory))\b"
    ),
    # ROCm's runtime, when it ends the process
    shape("cuda_error", "Memory access fault by GPU", r"(?P<name>Memory access fault by GPU)"),
    shape("cuda_error", "HW Exception by GPU", r"HW Exception by GPU [^\n]{1,60}reason ?: ?(?P<name>[\w ]{3,40})"),
    shape("cuda_error", "HSA_STATUS_ERROR_", r"aborting with error ?: ?(?P<name>HSA_STATUS_ERROR_\w{3,50})"),
    # compute-sanitizer, cuda-memcheck and cuda-gdb
    shape("cuda_error", "Invalid __", r"(?P<name>Invalid __(?:global|shared|local)__ (?:read|write|atomic))"),
    shape(
        "cuda_error",
        "Program hit ",
        r'Program hit [^"\n]{1,80}\(error (?P<code>\d{1,4})\) due to "(?P<name>[^"]{3,100})"',
    ),
    shape("cuda_error", "CUDA Exception: ", r"CUDA Exception: (?P<name>[A-Z][\w -]{3,60})"),
    shape("cuda_error", "CUDA_EXCEPTION_", r"CUDA_EXCEPTION_\d{1,2}, (?P<name>[A-Z][\w -]{3,60})"),
    shape("cuda_error", "_STATUS_", r"(?P<name>(?:CUBLAS|CUDNN|CUSPARSE|CUFFT)_STATUS_\w{3,40})"),
    # cudaGetErrorString and hipGetErrorString, whatever stands before it: Triton, CuPy, Numba, pybind11, thrust, a note
    *(
        shape("cuda_error", needle, rf"(?P<name>{words})")
        for needle, words in (
            ("llegal memory access", r"(?:an )?[Ii]llegal memory access"),
            # not torch's advice below every error: Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions
            ("evice-side assert", r"(?<!enable )[Dd]evice-side assert(?:ion)?(?: triggered)?"),
            ("isaligned address", r"[Mm]isaligned address"),
            ("nspecified launch failure", r"[Uu]nspecified launch failure"),
            ("encountered", r"(?:an )?illegal instruction (?=was encountered)"),
            ("ILLEGAL_ADDRESS", r"CUDA_ERROR_ILLEGAL_ADDRESS"),
            ("IllegalAddress", r"(?:cuda|hip)ErrorIllegalAddress"),
            ("ErrorAssert", r"(?:cuda|hip)ErrorAssert"),
        )
    ),
)
