"""From an rKernel to the C function that computes its rTasks.

`kernel.emit_kernel` is the only way in. A function is text for `kernels/rammer_kernel.h`; it follows from the rKernel
alone, so equal rKernels have equal code.
"""
