"""From an rKernel to the device function that computes its rTasks with all threads of a block.

`kernel.emit_kernel` is the way in, and `runs.emit_runs` for the walks of resident rKernels. A function is text for
`kernels/rammer_kernel.cuh`; it follows from the rKernel and from which operands are constants, so equal rKernels over
equal operands have equal code.

Each skeleton has its file; `points`, `loads` and `wait` serve them all. `contract` has three forms:

- `contract`: operands are staged in shared memory for blocks of sums, one after another or as one pipeline. `blocked`
  has the tile in blocks, `product` the operands in shared memory and the loop over their `steps`; `staging` and
  `windows` bring them there, `arithmetic` multiplies them, `finish` makes results of sums;
- `stream`: too few sums for that;
- `resident`: weights stay in registers from record to record. `residence` shares them out, `totals` says what their
  sums are for, `weights` brings them, `rest` has what comes behind the sums, `runs` the walk along the records.
"""
