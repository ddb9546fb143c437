"""From an rKernel to the device function that computes its rTasks with all threads of a block.

`kernel.emit_kernel` is the way in, and `resident.emit_runs` for the walks of resident rKernels. A function is text for
`kernels/rammer_kernel.cuh`; it follows from the rKernel and from which operands are constants, so equal rKernels over
equal operands have equal code.

Each skeleton has its file. `contract` has three forms:

- `contract`: blocks whose operands are staged in shared memory, in this order or as one pipeline. `blocked` has the tile
  in blocks, `product` the operands in shared memory and the loop over `steps`, `staging` and `windows` bring operands
  there, `arithmetic` multiplies them, `finish` makes results of sums;
- `stream`: too few sums for that;
- `resident`: weights that stay in registers. `residence` shares them out, `totals` says what their sums are for.
"""
