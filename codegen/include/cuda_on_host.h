// One thread of a CUDA device for a host compiler: what vec_cuda.cuh uses of the device, with the same results.
#pragma once
#include <stdint.h>
#include <string.h>
#define VDEV inline
#define VCOLD inline
#define VCOLD_LANES inline
#define VEC_UNROLL
#define VTABLE static const
#define __device__
#define __global__
#define __forceinline__ inline
struct uint2 { uint32_t x, y; };
struct uint4 { uint32_t x, y, z, w; };
struct dim3 { unsigned x = 1, y = 1, z = 1; };
inline dim3 gridDim, blockDim;
inline struct { unsigned x = 0, y = 0, z = 0; } threadIdx, blockIdx;
inline float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline double __fma_rn(double a, double b, double c) { return __builtin_fma(a, b, c); }
inline float __fsqrt_rn(float a) { return __builtin_sqrtf(a); }
inline double __dsqrt_rn(double a) { return __builtin_sqrt(a); }
template <class T> inline void __stcs(T* p, T x) { *p = x; }
inline void __syncthreads() {}
