"""What devices that compile kernels from text share: expressions as C, and plans as tables.

The text is C and C++ alike. Each device brings a header that gives its words a meaning: `rammer_<function>_<type>`.
"""
