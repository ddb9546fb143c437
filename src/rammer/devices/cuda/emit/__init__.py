"""From an rKernel to the device function that computes its rTasks with all threads of a block.

`kernel.emit_kernel` is the only way in. A function is text for `kernels/rammer_kernel.cuh`; it follows from the rKernel
alone, so equal rKernels have equal code.
"""
