"""From an rKernel to the C function that computes its rTasks.

`kernel.emit_kernel` is the only way in. A function is text that includes headers of `kernels/` and `skeletons/`; it
follows from the rKernel alone, so equal rKernels have equal code.
"""
