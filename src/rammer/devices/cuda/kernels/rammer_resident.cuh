/* What resident rKernels share: sums over the lanes of a warp, several at a time, and over warps. */
#ifndef RAMMER_RESIDENT_CUH
#define RAMMER_RESIDENT_CUH

/* Adds each of `count` values over the lanes whose numbers are equal modulo `across`. Lanes halve the values among them
 * at every step, so that a sum takes about one exchange. Returns the number of the sum that is then in `values[0]` of
 * this lane, the next ones behind it, `*present` in all: before, that is `count`. */
template <int count, int across, int distance = 16> RAMMER_INLINE int rammer_sum_lanes(float *values, int *present) {
    if constexpr (distance < across) {
        return 0;
    } else if constexpr (count == 1) {
        values[0] += __shfl_xor_sync(0xffffffffu, values[0], distance);
        return rammer_sum_lanes<1, across, distance / 2>(values, present);
    } else {
        constexpr int kept = (count + 1) / 2;
        const bool upper = (threadIdx.x & distance) != 0;
#pragma unroll
        for (int i = 0; i < kept; ++i) {
            const float partner = i + kept < count ? values[i + kept] : 0.0f;
            const float given = upper ? values[i] : partner;
            values[i] = (upper ? partner : values[i]) + __shfl_xor_sync(0xffffffffu, given, distance);
        }
        *present = upper ? *present - kept : min(*present, kept);
        return (upper ? kept : 0) + rammer_sum_lanes<kept, across, distance / 2>(values, present);
    }
}

/* Adds `count` values, a power of two, one half to the other. */
template <int count> RAMMER_INLINE float rammer_sum_halves(float *values) {
    if constexpr (count == 1) {
        return values[0];
    } else {
#pragma unroll
        for (int i = 0; i < count / 2; ++i)
            values[i] += values[i + count / 2];
        return rammer_sum_halves<count / 2>(values);
    }
}

/* Adds up what all warps have for a row: they lie `pitch` elements apart, those of neighbouring rows side by side. */
template <int pitch> RAMMER_INLINE float rammer_sum_warps(const float *from) {
    float sums[RAMMER_THREADS / 32];
#pragma unroll
    for (int warp = 0; warp < RAMMER_THREADS / 32; ++warp)
        sums[warp] = from[warp * pitch];
    return rammer_sum_halves<RAMMER_THREADS / 32>(sums);
}

#endif
