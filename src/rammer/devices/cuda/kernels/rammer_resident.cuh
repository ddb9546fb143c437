/* What resident rKernels share: sums over the lanes of a warp, several at a time. */
#ifndef RAMMER_RESIDENT_CUH
#define RAMMER_RESIDENT_CUH

/* Adds each of `count` values over all lanes. Lanes halve the values among them at every step, so that a sum takes
 * about one exchange. Returns the number of the sum that is then in `values[0]` of this lane; `count` or more if none. */
template <int count, int distance = 16> RAMMER_INLINE int rammer_sum_lanes(float *values, int present = count) {
    if constexpr (distance == 0) {
        return present > 0 ? 0 : 1 << 20;
    } else if constexpr (count == 1) {
        values[0] += __shfl_xor_sync(0xffffffffu, values[0], distance);
        return rammer_sum_lanes<1, distance / 2>(values, present);
    } else {
        constexpr int kept = (count + 1) / 2;
        const bool upper = (threadIdx.x & distance) != 0;
#pragma unroll
        for (int i = 0; i < kept; ++i) {
            const float partner = i + kept < count ? values[i + kept] : 0.0f;
            const float given = upper ? values[i] : partner;
            values[i] = (upper ? partner : values[i]) + __shfl_xor_sync(0xffffffffu, given, distance);
        }
        return (upper ? kept : 0) + rammer_sum_lanes<kept, distance / 2>(values, upper ? present - kept : min(present, kept));
    }
}

#endif
