"""From an rKernel to the device function that computes its rTasks with all threads of a block.

`kernel.emit_kernel` is the way in, and `resident.emit_runs` for the walks of resident rKernels. A function is text for
`kernels/rammer_kernel.cuh`; it follows from the rKernel and from which operands are constants, so equal rKernels over
equal operands have equal code.
"""
