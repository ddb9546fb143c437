"""From an rKernel to the device function that computes its rTasks with all threads of a block.

`kernel.emit_kernel` is the way in, and `runs.emit_runs` for the walks of persistent recurrent layers. A function is
text for `kernels/rammer_kernel.cuh`; it follows from the rKernel alone, whose form says which skeleton it is and
in which tiles, so equal rKernels have equal code.

Each skeleton has its file; `points`, `loads` and `wait` serve them all.

- `gemm`: operands pass through shared memory, threadblock tile after tile or all tiles as one pipeline. `blocked` has
  the tiles of an rTask, `product` the operands in shared memory and the loop over their `steps`; `staging` and
  `windows` bring them there, `arithmetic` multiplies them, `finish` is the epilogue;
- `gemv`: too few sums for that;
- `resident`, of a persistent recurrent layer: weights stay in registers from record to record (`tiling.persistent_rnn`
  shares them out). `weights` brings them, `rest` is the epilogue, `runs` the walk along the records.
"""
