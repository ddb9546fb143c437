/* The functions of rammer_intrinsics_sm90.cuh, in its order, for the host.
 *
 * Copies by tensor map are made where they are asked for, as early as can be: what is overwritten too soon shows. Products
 * read shared memory where they are asked for.
 */
#ifndef RAMMER_INTRINSICS_SM90_CUH
#define RAMMER_INTRINSICS_SM90_CUH

RAMMER_INLINE bool rammer_elect(void) {
    __syncwarp();
    return HOST_LANE == 0;
}

RAMMER_INLINE float rammer_zero(void) { return NAN; }
RAMMER_INLINE void rammer_used(const float &) {}

/* An mbarrier: how many are still to come, of how many in each phase, and bytes that are expected or have come before. */
struct host_mbarrier {
    int32_t bytes;
    uint16_t pending;
    uint16_t count : 15, phase : 1;
};
static_assert(sizeof(host_mbarrier) == sizeof(uint64_t), "as large as the machine's");

template <typename Fn> static inline void host_change_mbarrier(uint32_t at, Fn change) {
    host_point();
    host_mbarrier *barrier = (host_mbarrier *)host_in_shared(at);
    change(barrier);
    if (barrier->pending == 0 && barrier->bytes == 0) {
        barrier->phase ^= 1;
        barrier->pending = barrier->count;
    }
    host_changed(barrier);
}
RAMMER_INLINE void rammer_mbarrier_init(uint32_t at, uint32_t count) {
    host_mbarrier *barrier = (host_mbarrier *)host_in_shared(at);
    barrier->bytes = 0;
    barrier->pending = barrier->count = (uint16_t)count;
    barrier->phase = 0;
}
RAMMER_INLINE void rammer_mbarrier_init_fence(void) {}
RAMMER_INLINE void rammer_mbarrier_arrive(uint32_t at) {
    host_change_mbarrier(at, [=](host_mbarrier *barrier) {
        if (barrier->pending-- == 0)
            host_fail("more arrive at the mbarrier at %u than it waits for", at);
    });
}
RAMMER_INLINE void rammer_mbarrier_expect(uint32_t at, uint32_t bytes) {
    host_change_mbarrier(at, [=](host_mbarrier *barrier) { barrier->bytes += (int32_t)bytes; });
}
RAMMER_INLINE bool rammer_mbarrier_try_wait(uint32_t at, uint32_t parity) {
    const host_mbarrier *barrier = (const host_mbarrier *)host_in_shared(at);
    host_look(barrier, host_bits<uint64_t>(*barrier), sizeof(uint64_t));
    return barrier->phase != parity;
}
RAMMER_INLINE void rammer_mbarrier_wait(uint32_t at, uint32_t parity) {
    while (!rammer_mbarrier_try_wait(at, parity)) {
    }
}
RAMMER_INLINE void rammer_fence_global_copies(void) {}
RAMMER_INLINE void rammer_fence_shared_copies(void) {}
RAMMER_INLINE void rammer_prefetch_tensor_map(const void *map) { host_check_aligned(map, 64); }
RAMMER_INLINE uint64_t rammer_evict_last(void) { return 0; }

/* A tensor map, as host_cuda/driver.py encodes it. */
struct host_tensor_map {
    uint64_t address, extents[4], strides_bytes[3];
    uint32_t box[4], element_bytes;
};

/* Where a byte of an operand lies whose rows are 128 bytes: pieces of 16 change places within 8 rows. */
static inline uint32_t host_swizzled(uint32_t at) { return at ^ (at >> 7 & 7) << 4; }

/* What lies inside the tensor of a row of a box, from element `first` on; the rest stays. */
static inline void host_read_row(char (&row)[128], const host_tensor_map &map, int64_t first, const int64_t (&place)[4]) {
    uint64_t from = map.address;
    for (int i = 1; i < 4; ++i) {
        if (place[i] < 0 || place[i] >= (int64_t)map.extents[i])
            return;
        from += place[i] * map.strides_bytes[i - 1];
    }
    const int64_t begin = max(first, (int64_t)0), end = min(first + (int64_t)map.box[0], (int64_t)map.extents[0]);
    if (begin < end)
        memcpy(row + (begin - first) * map.element_bytes, (const void *)(from + begin * map.element_bytes),
               (end - begin) * map.element_bytes);
}

RAMMER_INLINE void rammer_tensor_copy(uint32_t into, const void *of, const int32_t (&at)[4], uint32_t barrier, uint64_t) {
    const host_tensor_map *map = (const host_tensor_map *)of;
    if (into % 1024 || map->box[0] * map->element_bytes != 128)
        host_fail("a copy of rows of %u bytes to %u", map->box[0] * map->element_bytes, into);
    uint32_t to = into;
    int64_t place[4];
    for (place[3] = at[3]; place[3] < (int64_t)at[3] + map->box[3]; ++place[3])
        for (place[2] = at[2]; place[2] < (int64_t)at[2] + map->box[2]; ++place[2])
            for (place[1] = at[1]; place[1] < (int64_t)at[1] + map->box[1]; ++place[1], to += 128) {
                char row[128] = {};
                host_read_row(row, *map, at[0], place);
                for (uint32_t piece = 0; piece < 128; piece += 16)
                    memcpy(host_in_shared(host_swizzled(to + piece)), row + piece, 16);
            }
    host_change_mbarrier(barrier, [=](host_mbarrier *waiting) { waiting->bytes -= (int32_t)(to - into); });
}

enum rammer_format { RAMMER_F16, RAMMER_BF16, RAMMER_TF32 };

RAMMER_INLINE void rammer_wgmma_fence(void) {}
RAMMER_INLINE void rammer_wgmma_commit(void) {}
template <int pending> RAMMER_INLINE void rammer_wgmma_wait(void) { __syncwarp(); }
RAMMER_INLINE uint32_t rammer_matrix(uint32_t at) { return (at >> 4 & 0x3fff) | 1u << 16; }

/* `depth` elements, 32 bytes, of rows of an operand as numbers. */
template <rammer_format format, int depth>
static inline void host_read_matrix(float (*into)[depth], uint32_t matrix, uint32_t rows) {
    for (uint32_t row = 0; row < rows; ++row)
        for (uint32_t half = 0; half < 2; ++half) {
            const uint32_t at = ((matrix & 0x3fff) << 4) + row * 128 + half * 16;
            uint32_t words[4];
            memcpy(words, host_in_shared(host_swizzled(at)), sizeof words);
            for (uint32_t i = 0; i < depth / 2; ++i) {
                const uint16_t stored = (uint16_t)(words[i / 2 % 4] >> 16 * (i % 2));
                into[row][half * (depth / 2) + i] = format == RAMMER_TF32  ? __uint_as_float(words[i % 4] & 0xffffe000u)
                                                    : format == RAMMER_F16 ? rammer_widen_f16(stored)
                                                                           : rammer_widen_bf16(stored);
            }
        }
}
struct host_wgmma {
    float *sums;
    uint32_t a, b;
    bool add;
};
template <rammer_format format, int held>
RAMMER_INLINE void rammer_wgmma(float (&sums)[held], uint32_t a, uint32_t b, uint32_t is_added) {
    host_wgmma mine = {sums, a + threadIdx.x / 32 % 4 * (16 * 128 / 16), b, is_added != 0};
    host_together("wgmma", 0xffffffffu, &mine, [](void *const *lanes, unsigned) {
        constexpr int depth = format == RAMMER_TF32 ? 8 : 16, columns = held * 2;
        float left[16][depth], right[columns][depth];
        const host_wgmma first = *(const host_wgmma *)lanes[0];
        host_read_matrix<format>(left, first.a, 16);
        host_read_matrix<format>(right, first.b, columns);
        for (uint32_t lane = 0; lane < HOST_WARP; ++lane) {
            const host_wgmma *one = (const host_wgmma *)lanes[lane];
            if (one->a != first.a || one->b != first.b || one->add != first.add)
                host_fail("lanes of a warp multiply different matrices");
            for (uint32_t i = 0; i < held; ++i) {
                const uint32_t row = lane / 4 + i / 2 % 2 * 8, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
                float total = one->add ? one->sums[i] : 0.0f;
                for (uint32_t k = 0; k < depth; ++k)
                    total += left[row][k] * right[column][k];
                one->sums[i] = total;
            }
        }
    });
}

#endif
