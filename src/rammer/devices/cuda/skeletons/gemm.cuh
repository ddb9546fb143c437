/* The skeleton `gemm`: sums of products whose operands pass through shared memory, K-innermost, stage after stage.
 *
 *     for each threadblock tile of the rTask
 *       for each group of sums over the same K, for each stage
 *         start to copy a later stage's operands into shared memory, constants first
 *         once, behind the first constants: wait for what others write, load what the epilogue reads
 *         multiply and add the present stage's, each warp its part of the sums
 *       put the parts of the sums together in shared memory
 *       for each place: the epilogue
 *
 * Of `overlapped` tiles the stages are one pipeline: the next tile's operands are on their way while one is finished.
 * A convolution is such a product, too: an operand's element is whatever its functor says, padding included.
 *
 * An rKernel (emit/gemm.py) gives the sizes as constants, and functors: where elements of operands lie, and the epilogue.
 * kernels/rammer_mma.cuh has what a warp multiplies.
 */
#ifndef RAMMER_GEMM_CUH
#define RAMMER_GEMM_CUH

/* A threadblock tile: the number of its batch, its first row and its first column in the rTask. */
struct rammer_tile {
    uint32_t batch, row0, column0;
};

/* Where a stage of `k` elements begins along K, axes fastest first. Within a stage the axes move that the first `extent`
 * stands for, together `element[0]`; the outer ones stand still, each at an element of its own. */
template <typename Index, bool repeats, int k, int extent, int... outer> struct rammer_k {
    enum { MOVING = (extent + k - 1) / k * k, STAGES = (int)(((int64_t)extent * ... * outer) + k - 1) / k };
    Index element[1 + sizeof...(outer)] = {};

    /* Goes on to the next stage: no divisions. One K after another `repeats`. */
    RAMMER_MEMBER void next(void) {
        if constexpr (sizeof...(outer) == 0 && !repeats) {
            element[0] += k;
        } else {
            element[0] = element[0] == MOVING - k ? 0 : element[0] + k;
            carry<1, outer...>();
        }
    }

  private:
    template <int axis> RAMMER_MEMBER void carry(void) {}
    template <int axis, int size, int... more> RAMMER_MEMBER void carry(void) {
        if (element[axis - 1] == 0) {
            element[axis] = element[axis] == size - 1 ? 0 : element[axis] + 1;
            carry<axis + 1, more...>();
        }
    }
};

/* What is to be copied: `from`, or zeros unless it is `present`. */
template <typename T> struct rammer_piece {
    const T *from;
    bool present;
};

/* The place of a point among `points` from number `first` on: before all of them or behind where it is not one. */
template <int points> RAMMER_INLINE uint32_t rammer_place(int32_t point, uint32_t first) {
    return (uint32_t)min(max(point - (int32_t)first, 0), points);
}

/* The threads of a block: how many there are, and which one this is. */
struct rammer_block {
    enum { THREADS = RAMMER_THREADS };
    static RAMMER_MEMBER uint32_t rank(void) { return threadIdx.x; }
};

/* An operand in shared memory, from byte `at` of a stage on: `points` points, `pitch` elements apart, each with the `k`
 * elements of a stage side by side. `Team` are the threads that bring it. */
template <typename T, int at, int points, int pitch, int k, typename Team = rammer_block> struct rammer_operand {
    enum { PITCH = pitch, BYTES = points * pitch * sizeof(T) };

    static RAMMER_MEMBER T *place(char *stage, uint32_t point, uint32_t element) {
        return (T *)(stage + at) + point * pitch + element;
    }

    /* Starts to copy `chunk` elements at a time: source(point, element) is a rammer_piece. Neighbouring threads take
     * neighbouring pieces of a point, or with `along_points` neighbouring points. */
    template <int chunk, bool along_points, typename Source> static RAMMER_MEMBER void copy(char *stage, Source source) {
        each<chunk, along_points>([&](uint32_t point, uint32_t element) { start<chunk>(stage, point, element, source); });
    }

    /* Likewise those points alone that are from `begin` on and before `end`. */
    template <int chunk, typename Source>
    static RAMMER_MEMBER void copy_between(char *stage, uint32_t begin, uint32_t end, Source source) {
        each_between<chunk>(begin, end, [&](uint32_t point, uint32_t element) { start<chunk>(stage, point, element, source); });
    }

    /* Likewise all other points. */
    template <int chunk, bool along_points, typename Source>
    static RAMMER_MEMBER void copy_outside(char *stage, uint32_t begin, uint32_t end, Source source) {
        each<chunk, along_points>([&](uint32_t point, uint32_t element) {
            if (point < begin || point >= end)
                start<chunk>(stage, point, element, source);
        });
    }

    /* Likewise single elements that are too short to be copied so: through registers, several on their way together. */
    template <bool along_points, typename Source> static RAMMER_MEMBER void bring(char *stage, Source source) {
        constexpr uint32_t COPIES = points * k, FAST = along_points ? points : k;
        constexpr int TOGETHER = 8;
#pragma unroll 1
        for (uint32_t first = Team::rank(); first < COPIES; first += TOGETHER * Team::THREADS) {
            T values[TOGETHER];
#pragma unroll
            for (int i = 0; i < TOGETHER; ++i) {
                const uint32_t copy = first + i * Team::THREADS, fast = copy % FAST, slow = copy / FAST;
                const rammer_piece<T> piece = source(along_points ? fast : slow, along_points ? slow : fast);
                values[i] = rammer_load_where(piece.from, piece.present && copy < COPIES);
            }
#pragma unroll
            for (int i = 0; i < TOGETHER; ++i) {
                const uint32_t copy = first + i * Team::THREADS, fast = copy % FAST, slow = copy / FAST;
                if (copy < COPIES)
                    *place(stage, along_points ? fast : slow, along_points ? slow : fast) = values[i];
            }
        }
    }

    /* Stores value(point, element), which is computed. */
    template <bool along_points, typename Value> static RAMMER_MEMBER void compute(char *stage, Value value) {
        each<1, along_points>([&](uint32_t point, uint32_t element) {
            *place(stage, point, element) = value(point, element);
        });
    }

    /* Likewise `together` neighbouring elements at a time: values(point, element, T (&into)[together]). */
    template <int together, typename Values> static RAMMER_MEMBER void compute_vectors(char *stage, Values values) {
        each<together, false>([&](uint32_t point, uint32_t element) {
            T into[together] = {};
            values(point, element, into);
            rammer_stage_vector<together>(place(stage, point, element), into);
        });
    }

    /* Likewise those points alone that are from `begin` on and before `end`. */
    template <int together, typename Values>
    static RAMMER_MEMBER void compute_between(char *stage, uint32_t begin, uint32_t end, Values values) {
        each_between<together>(begin, end, [&](uint32_t point, uint32_t element) {
            T into[together] = {};
            values(point, element, into);
            rammer_stage_vector<together>(place(stage, point, element), into);
        });
    }

    /* Likewise `together` neighbouring points at a time: values(point, element, T (&into)[together]). */
    template <int together, typename Values> static RAMMER_MEMBER void compute_neighbours(char *stage, Values values) {
#pragma unroll 1
        for (uint32_t copy = Team::rank(); copy < points / together * k; copy += Team::THREADS) {
            const uint32_t element = copy % k, point = copy / k * together;
            T into[together] = {};
            values(point, element, into);
#pragma unroll
            for (int i = 0; i < together; ++i)
                *place(stage, point + i, element) = into[i];
        }
    }

  private:
    template <int chunk, typename Source>
    static RAMMER_MEMBER void start(char *stage, uint32_t point, uint32_t element, Source source) {
        const rammer_piece<T> piece = source(point, element);
        rammer_cp_async<chunk * sizeof(T)>(place(stage, point, element), piece.from, piece.present);
    }

    template <int chunk, typename Fn> static RAMMER_MEMBER void each_between(uint32_t begin, uint32_t end, Fn fn) {
        constexpr uint32_t PIECES = k / chunk;
#pragma unroll 1
        for (uint32_t piece = begin * PIECES + Team::rank(); piece < end * PIECES; piece += Team::THREADS)
            fn(piece / PIECES, piece % PIECES * chunk);
    }

    template <int chunk, bool along_points, typename Fn> static RAMMER_MEMBER void each(Fn fn) {
        constexpr uint32_t PIECES = k / chunk, COPIES = points * PIECES, FAST = along_points ? points : PIECES;
#pragma unroll 4 /* more is more code only */
        for (uint32_t i = 0; i < (COPIES + Team::THREADS - 1) / Team::THREADS; ++i) {
            const uint32_t copy = Team::rank() + i * Team::THREADS;
            if (COPIES % Team::THREADS != 0 && copy >= COPIES)
                break;
            const uint32_t fast = copy % FAST, slow = copy / FAST;
            fn(along_points ? fast : slow, (along_points ? slow : fast) * chunk);
        }
    }
};

/* Of the sums of that number, the operand of rows and the operand of columns. */
template <int sum, typename A, typename B> struct rammer_term {
    /* Adds the products of a warp's `share` of a stage. */
    template <int share, typename Gemm> static RAMMER_MEMBER void multiply(Gemm &gemm, char *stage) {
        gemm.sums[sum].template multiply<share, A::PITCH>(
            A::place(stage, gemm.warp_row, gemm.slice * share), B::place(stage, gemm.warp_column, gemm.slice * share));
    }
};

/* An axis of `count` points that lie `step` elements apart in a patch. */
template <int count, int step> struct rammer_axis {
    enum { COUNT = count, STEP = step };
};

/* Points along axes, the first fastest, and where they are in a patch. */
template <typename... Axes> struct rammer_axes {
    enum { COUNT = (1 * ... * Axes::COUNT) };
    static RAMMER_MEMBER uint32_t at(uint32_t point) {
        uint32_t at = 0;
        ((at += point % Axes::COUNT * Axes::STEP, point /= Axes::COUNT), ...);
        return at;
    }
};

/* Where the elements of a window are, from its first on: so many `channels` at each of the `Taps`. */
template <int channels, typename Taps> struct rammer_window_walk {
    uint32_t tap, channel, at;

    RAMMER_MEMBER explicit rammer_window_walk(uint32_t element) : tap(element / channels), channel(element % channels) {
        at = Taps::at(tap) + channel;
    }
    template <int elements> RAMMER_MEMBER void next(void) {
        channel += elements;
        at += elements;
        if (channel == channels) {
            channel = 0;
            at = Taps::at(++tap);
        }
    }
};

/* Likewise, if rows are windows of a patch, an operand whose points are pixels: `Rows` are where they begin. */
template <int sum, typename Patch, typename B, int channels, typename Rows, typename Taps> struct rammer_window_term {
    template <int share, typename Gemm> static RAMMER_MEMBER void multiply(Gemm &gemm, char *stage) {
        const auto row = [&](uint32_t number) {
            return Patch::place(stage, 0, Rows::at(min(gemm.warp_row + number, (uint32_t)Rows::COUNT - 1)));
        };
        gemm.sums[sum].template multiply_windows<share, B::PITCH>(
            row, rammer_window_walk<channels, Taps>(gemm.slice * share),
            B::place(stage, gemm.warp_column, gemm.slice * share));
    }
};

/* Sums over the same K: `stages` of their operands are in shared memory. `constants` and `others` copy a stage of operands,
 * (const rammer_tile &, const K &, char *stage); `others` are those that may not be read before the rTask has waited. */
template <typename K_, int stages, int stage_bytes, typename Constants, typename Others, typename... Terms>
struct rammer_group {
    typedef K_ K;
    enum { AHEAD = stages - 1, STAGE_BYTES = stage_bytes, BYTES = stages * stage_bytes };
    Constants constants;
    Others others;

    template <int share, typename Gemm> static RAMMER_MEMBER void multiply(Gemm &gemm, char *stage) {
        (Terms::template multiply<share>(gemm, stage), ...);
    }
};

template <typename K, int stages, int stage_bytes, typename... Terms, typename Constants, typename Others>
RAMMER_INLINE auto rammer_group_of(Constants constants, Others others) {
    return rammer_group<K, stages, stage_bytes, Constants, Others, Terms...>{constants, others};
}

/* The sums of a threadblock tile of `m` by `n`, in `slices` of each stage, of an rTask of so many `rows`, `columns` and
 * `batches`. A warp has those of a `Warp` tile for each of `terms` terms. */
template <
    typename Warp, int terms, int m, int n, int k, int slices, uint32_t rows, uint32_t columns, uint32_t batches,
    bool overlapped>
struct rammer_gemm {
    enum : uint32_t {
        DOWN = m / Warp::M,
        WARPS = DOWN * (n / Warp::N),
        ROW_TILES = (rows + m - 1) / m,
        COLUMN_TILES = (columns + n - 1) / n,
        TILES = ROW_TILES * COLUMN_TILES * batches,
        PLACES = m * n,
        PITCH = n + 8, /* of the sums in shared memory */
        SIZE = m * PITCH,
        SHARE = k / slices
    };
    typedef typename Warp::Stored Sum;
    Warp sums[terms] = {};
    const uint32_t warp = threadIdx.x / 32 % WARPS, slice = threadIdx.x / 32 / WARPS;
    const uint32_t warp_row = warp % DOWN * Warp::M, warp_column = warp / DOWN * Warp::N;

    /* Computes an rTask. begin() waits for what others write, and returns false if that is in vain. inside(tile) says whether
     * the tile's batch is one of the tensor's, the same for all threads. The epilogue is one of those below. */
    template <typename Begin, typename Inside, typename Epilogue, typename... Groups>
    static RAMMER_MEMBER void run(
        char *scratch, Begin begin, Inside inside, Epilogue epilogue, const Groups &...groups
    ) {
        if constexpr (overlapped)
            run_overlapped(scratch, begin, inside, epilogue, groups...);
        else
            run_one_by_one(scratch, begin, inside, epilogue, groups...);
    }

    /* The sums of `width` neighbours from a place on, of all slices. */
    template <int term, int width> static RAMMER_MEMBER void totals(Sum (&into)[width], const Sum *parts, uint32_t place) {
        const Sum *sums = parts + term * slices * SIZE + place / n * PITCH + place % n;
        rammer_load_vector<width>(into, sums);
#pragma unroll
        for (int slice = 1; slice < slices; ++slice) {
            Sum others[width];
            rammer_load_vector<width>(others, sums + slice * SIZE);
#pragma unroll
            for (int lane = 0; lane < width; ++lane)
                into[lane] += others[lane];
        }
    }
    template <int term> static RAMMER_MEMBER Sum total(const Sum *parts, uint32_t place) {
        Sum sum[1];
        totals<term>(sum, parts, place);
        return sum[0];
    }

  private:
    template <typename Begin, typename Inside, typename Epilogue, typename... Groups>
    static RAMMER_MEMBER void run_one_by_one(
        char *scratch, Begin begin, Inside inside, Epilogue epilogue, const Groups &...groups
    ) {
        if (TILES > 1 && !begin()) /* the only tile begins before the rTask waits */
            return;
        for (uint32_t batch = 0; batch < batches; ++batch)
            for (uint32_t row0 = 0; row0 < rows; row0 += m)
                for (uint32_t column0 = 0; column0 < columns; column0 += n) {
                    const rammer_tile tile = {batch, row0, column0};
                    if (!inside(tile))
                        continue;
                    rammer_gemm gemm;
                    if (TILES > 1)
                        epilogue.prefetch(tile);
                    bool begins = TILES == 1;
                    const auto begin_and_prefetch = [&] {
                        if (!begin())
                            return false;
                        epilogue.prefetch(tile);
                        return true;
                    };
                    if (!(gemm.add(scratch, tile, groups, begins, begin_and_prefetch) && ...))
                        return;
                    gemm.finish(tile, (Sum *)scratch, epilogue);
                    if (TILES > 1)
                        __syncthreads(); /* before the next tile's operands */
                }
    }

    /* Adds a group's products. If it `begins`, it calls begin() behind the first copies of constants; returns false if that
     * does. */
    template <typename Group, typename Begin>
    RAMMER_MEMBER bool add(char *scratch, const rammer_tile &tile, const Group &group, bool &begins, Begin begin) {
        ring<Group> filled{scratch}, multiplied{scratch};
        typename Group::K at;
        for (uint32_t number = 0; number < Group::K::STAGES + Group::AHEAD; ++number) {
            if (number >= Group::AHEAD)
                wait_for_stage<Group>();
            if (number < Group::K::STAGES) {
                group.constants(tile, at, filled.stage());
                if (begins && number == 0 && !begin())
                    return false;
                group.others(tile, at, filled.stage());
                filled.next();
                at.next();
            }
            rammer_cp_async_commit();
            if (number >= Group::AHEAD) {
                multiply<Group>(multiplied.stage());
                multiplied.next();
            }
        }
        begins = false;
        __syncthreads(); /* before what follows uses the memory */
        return true;
    }

    template <typename Begin, typename Inside, typename Epilogue, typename Group>
    static RAMMER_MEMBER void run_overlapped(
        char *scratch, Begin begin, Inside inside, Epilogue epilogue, const Group &group
    ) {
        constexpr uint32_t STAGES = Group::K::STAGES;
        rammer_gemm gemm;
        ring<Group> filled{scratch}, multiplied{scratch};
        typename Group::K at;
        for (uint32_t number = 0; number < TILES * STAGES + Group::AHEAD; ++number) {
            if (number >= Group::AHEAD)
                wait_for_stage<Group>();
            if (number < TILES * STAGES) {
                const rammer_tile tile = tile_of(number / STAGES);
                if (inside(tile)) {
                    group.constants(tile, at, filled.stage());
                    if (number == 0 && !begin())
                        return;
                    group.others(tile, at, filled.stage());
                    filled.next();
                    at.next();
                }
            }
            rammer_cp_async_commit();
            if (number >= Group::AHEAD) {
                const rammer_tile tile = tile_of((number - Group::AHEAD) / STAGES);
                const uint32_t stage = (number - Group::AHEAD) % STAGES;
                if (inside(tile)) {
                    if (stage == 0)
                        epilogue.prefetch(tile);
                    gemm.template multiply<Group>(multiplied.stage());
                    multiplied.next();
                    if (stage == STAGES - 1) {
                        gemm.finish(tile, (Sum *)(scratch + Group::BYTES), epilogue);
#pragma unroll
                        for (int term = 0; term < terms; ++term)
                            gemm.sums[term] = {};
                    }
                }
            }
        }
    }

    static RAMMER_MEMBER rammer_tile tile_of(uint32_t number) {
        return {number / (COLUMN_TILES * ROW_TILES), number / COLUMN_TILES % ROW_TILES * m, number % COLUMN_TILES * n};
    }

    /* All copies of the next stage are there, and what is copied over is no longer read. */
    template <typename Group> static RAMMER_MEMBER void wait_for_stage(void) {
        rammer_cp_async_wait<Group::AHEAD - 1>();
        __syncthreads();
    }

    /* The stages of a group by turns: an offset from `scratch`, or an address. The latter takes more instructions, but NVRTC 13.5
     * spills `scratch` where a program has many products (docs/experiments/streams-and-code.md). */
    template <typename Group> struct ring {
#ifdef RAMMER_STAGES_BY_ADDRESS
        char *address;
        uint32_t number = 0;
        RAMMER_MEMBER char *stage(void) const { return address; }
        RAMMER_MEMBER void next(void) {
            const bool is_last = number == Group::AHEAD;
            address += is_last ? Group::STAGE_BYTES - Group::BYTES : Group::STAGE_BYTES;
            number = is_last ? 0 : number + 1;
        }
#else
        char *scratch;
        int32_t at = 0;
        RAMMER_MEMBER char *stage(void) const { return scratch + at; }
        RAMMER_MEMBER void next(void) {
            at = at == Group::BYTES - Group::STAGE_BYTES ? 0 : at + Group::STAGE_BYTES;
        }
#endif
    };

    template <typename Group> RAMMER_MEMBER void multiply(char *stage) {
        if (slice < slices)
            Group::template multiply<SHARE>(*this, stage);
    }

    template <typename Epilogue> RAMMER_MEMBER void finish(const rammer_tile &tile, Sum *parts, Epilogue &epilogue) {
        if (slice < slices) {
#pragma unroll
            for (int term = 0; term < terms; ++term)
                sums[term].template store<PITCH>(parts + (term * slices + slice) * SIZE + warp_row * PITCH + warp_column);
        }
        __syncthreads();
        epilogue.run(tile, parts);
    }
};

#endif
