"""An interpreter of PTX: kernels as NVRTC compiles them for a device, run on a host by what the PTX ISA says.

`syntax` reads a module, `machine` runs a grid of a few blocks, `compiled` calls NVRTC. Instructions are functions of a
`warp`, in tables by their first word: `arithmetic`, `accesses`, `warps`, `sm90`, `wgmma`.
"""
