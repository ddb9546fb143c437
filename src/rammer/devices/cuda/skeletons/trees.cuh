/* The skeleton `trees`: rows walk through decision trees whose nodes are in shared memory (tiling/trees.py).
 *
 * The codes of an rTask's rows are copied there, then so many trees' nodes as have room, one group after the other. Either
 * each thread has neighbouring rows of its own and goes through all trees, or, where rows are few, threads share out pairs
 * of a tree and a row, and sums are made of the leaves that they leave in shared memory. Leaves are added in the order of
 * trees either way. Codes of neighbouring rows lie so that a warp's are in different banks.
 */
#ifndef RAMMER_TREES_CUH
#define RAMMER_TREES_CUH

/* How a row's leaf is found (`TreeStrategy`): by as many steps as the deepest tree has; by steps until all paths of a
 * thread are at leaves; by comparing all nodes, of which a tree has no more than a word has bits. */
enum rammer_tree_strategy { rammer_trees_perfect, rammer_trees_traversal, rammer_trees_gemm };

/* Trees over `columns` of codes. Of a node's word the highest `column_bits` are its column, the lowest `bound_bits` how much
 * the greatest bound is above its own, those between its step: a code above the bound carries into it. */
template <typename Code_, typename Word_, typename Real_, int columns_, int column_bits, int bound_bits, int depth,
          rammer_tree_strategy strategy>
struct rammer_tree_walk {
    typedef Code_ Code;
    typedef Word_ Word;
    typedef Real_ Real;
    enum { COLUMNS = columns_ };

    /* From the nodes `at` to leaves; path p has the codes codes[column * pitch + row[p]]. */
    template <int paths>
    static RAMMER_MEMBER void follow(uint32_t (&at)[paths], const Word *nodes, const Code *codes, uint32_t pitch,
                                     const uint32_t (&row)[paths]) {
        if constexpr (strategy == rammer_trees_gemm) {
#pragma unroll
            for (int path = 0; path < paths; ++path)
                at[path] += leaf(nodes + at[path], codes + row[path], pitch);
        } else {
#pragma unroll 1
            for (int step = 0; step < depth; ++step) {
                uint32_t moved = 0;
#pragma unroll
                for (int path = 0; path < paths; ++path) {
                    const uint32_t further = further_by(nodes[at[path]], codes + row[path], pitch);
                    at[path] += further;
                    moved |= further;
                }
                if (strategy == rammer_trees_traversal && moved == 0)
                    break;
            }
        }
    }

  private:
    /* From a node to the child that a row goes to; nothing from a leaf. */
    static RAMMER_MEMBER uint32_t further_by(Word node, const Code *codes, uint32_t pitch) {
        const uint32_t column = (uint32_t)(node >> (8 * (int)sizeof(Word) - column_bits));
        const Word rest = node & ((Word)~(Word)0 >> column_bits);
        return (uint32_t)((rest + codes[column * pitch]) >> bound_bits);
    }

    /* The leaf of a tree that a row comes to. Bit i says that it comes to node i: levels are in order, so the highest is
     * the leaf's. */
    static RAMMER_MEMBER uint32_t leaf(const Word *tree, const Code *codes, uint32_t pitch) {
        uint32_t reached = 1;
        for (uint32_t node = 0, nodes = 1; node < nodes; ++node) {
            const Word word = tree[node];
            nodes += (word & ((Word)~(Word)0 >> column_bits)) >> bound_bits ? 2 : 0;
            reached |= (reached >> node & 1) << (node + further_by(word, codes, pitch));
        }
        return 31 - (uint32_t)__clz((int)reached);
    }
};

/* A group of trees in memory: tree t begins at nodes[roots[t]] and ends where the next one begins; `left` roots follow in
 * all, the last of which ends at node number `past`. */
template <typename Walk> struct rammer_forest {
    const int32_t *roots;
    uint32_t trees, left;
    const typename Walk::Word *nodes;
    const typename Walk::Real *values;
    uint32_t past;

    RAMMER_MEMBER uint32_t end(uint32_t tree) const { return tree + 1 < left ? (uint32_t)roots[tree + 1] : past; }

    /* How many trees from one on have no more than so many nodes; all threads come by. */
    RAMMER_MEMBER uint32_t fitting(uint32_t first, uint32_t most) const {
        const uint32_t tree = first + threadIdx.x;
        return __syncthreads_count(tree < trees && end(tree) - (uint32_t)roots[first] <= most);
    }
};

/* Copies elements to shared memory; those of several turns are on their way at a time. */
template <typename T> RAMMER_INLINE void rammer_bring_nodes(T *into, const T *from, uint32_t count) {
    constexpr int TURNS = 8;
    for (uint32_t first = threadIdx.x; first < count; first += TURNS * RAMMER_THREADS) {
        T some[TURNS];
#pragma unroll
        for (int turn = 0; turn < TURNS; ++turn)
            some[turn] = from[min(first + turn * RAMMER_THREADS, count - 1)];
#pragma unroll
        for (int turn = 0; turn < TURNS; ++turn)
            if (first + turn * RAMMER_THREADS < count)
                into[first + turn * RAMMER_THREADS] = some[turn];
    }
}

/* rTasks of up to `rows` rows; a leaf has `width` values. `capacity` nodes have room, 0: they are read where they are. */
template <typename Walk, uint32_t rows, uint32_t width, uint32_t capacity> struct rammer_trees {
    typedef typename Walk::Code Code;
    typedef typename Walk::Word Word;
    typedef typename Walk::Real Real;

    /* Threads have `each` rows of their own, and follow them through `side` trees at a time. finish(row, value, sum) is
     * the epilogue. */
    template <int each, int side, typename Finish>
    static RAMMER_MEMBER void by_rows(char *scratch, const Code *codes, int64_t column_step, int64_t row_step,
                                      uint32_t present, rammer_forest<Walk> forest, Finish finish) {
        constexpr uint32_t MOST = 16 / each, TOGETHER = width < MOST ? width : MOST;
        Real *value = (Real *)scratch;
        Word *node = (Word *)(value + capacity * width);
        Code *mine = (Code *)(node + capacity);
        bring(mine, codes, column_step, row_step, present);
        const uint32_t own = threadIdx.x * each;
        for (uint32_t first = 0; first < width; first += TOGETHER) {
            Real sums[each][TOGETHER] = {};
            for (uint32_t tree = 0; tree < forest.trees;) {
                const uint32_t begin = forest.roots[tree], many = forest.fitting(tree, capacity);
                const uint32_t last = tree + (many ? many : 1);
                if (many) {
                    const uint32_t count = forest.end(last - 1) - begin;
                    rammer_bring_nodes(node, forest.nodes + begin, count);
                    rammer_bring_nodes(value, forest.values + begin * width, count * width);
                }
                __syncthreads();
                if (own < present) {
                    if (many)
                        add<each, side>(sums, forest.roots, begin, tree, last, node, value, mine, own, first);
                    else
                        add<each, side>(sums, forest.roots, 0, tree, last, forest.nodes, forest.values, mine, own, first);
                }
                tree = last;
            }
#pragma unroll
            for (int row = 0; row < each; ++row)
#pragma unroll
                for (uint32_t place = 0; place < TOGETHER; ++place)
                    if (own + row < present && (width % TOGETHER == 0 || first + place < width))
                        finish(own + row, first + place, sums[row][place]);
        }
    }

    /* Threads share out pairs of a tree and a row, `side` of each thread at a time; the leaves of `room` trees have room. */
    template <uint32_t room, int side, typename Finish>
    static RAMMER_MEMBER void by_pairs(char *scratch, const Code *codes, int64_t column_step, int64_t row_step,
                                       uint32_t present, rammer_forest<Walk> forest, Finish finish) {
        Real *leaf = (Real *)scratch, sum = 0;
        Word *node = (Word *)(leaf + room * width * rows);
        Code *mine = (Code *)(node + capacity);
        bring(mine, codes, column_step, row_step, present);
        for (uint32_t tree = 0; tree < forest.trees;) {
            uint32_t many = min(room, forest.trees - tree), begin = 0;
            const Word *nodes = forest.nodes;
            bool near = false;
            if constexpr (capacity > 0) {
                const uint32_t fitting = forest.fitting(tree, capacity);
                near = fitting > 0;
                many = min(many, near ? fitting : 1);
                if (near) {
                    begin = forest.roots[tree];
                    rammer_bring_nodes(node, nodes + begin, forest.end(tree + many - 1) - begin);
                }
            }
            __syncthreads();
            for (uint32_t pair = threadIdx.x; pair < many * rows; pair += side * RAMMER_THREADS) {
                if (near)
                    leaves<side>(leaf, forest, tree, pair, many * rows, begin, node, mine);
                else
                    leaves<side>(leaf, forest, tree, pair, many * rows, 0, nodes, mine);
            }
            __syncthreads();
            if (threadIdx.x < rows * width)
                add_leaves(sum, leaf + threadIdx.x, many);
            tree += many;
        }
        if (threadIdx.x < rows * width && threadIdx.x % rows < present)
            finish(threadIdx.x % rows, threadIdx.x / rows, sum);
    }

  private:
    /* Copies the codes of the rows that are present. */
    static RAMMER_MEMBER void bring(Code *into, const Code *codes, int64_t column_step, int64_t row_step, uint32_t present) {
        for (uint32_t i = threadIdx.x; i < Walk::COLUMNS * rows; i += RAMMER_THREADS)
            into[i] = i % rows < present ? codes[i / rows * column_step + i % rows * row_step] : (Code)0;
    }

    /* Adds the leaves of trees to the sums of a thread's rows. Node number `begin` is the first of `nodes`. */
    template <int each, int side, typename Sums>
    static RAMMER_MEMBER void add(Sums &sums, const int32_t *roots, uint32_t begin, uint32_t tree, uint32_t last,
                                  const Word *nodes, const Real *values, const Code *codes, uint32_t own, uint32_t first) {
        constexpr uint32_t TOGETHER = sizeof(sums[0]) / sizeof(Real);
        uint32_t row[side * each];
#pragma unroll
        for (int path = 0; path < side * each; ++path)
            row[path] = own + path % each;
        for (; tree < last; tree += side) {
            uint32_t at[side * each];
#pragma unroll
            for (int path = 0; path < side * each; ++path)
                at[path] = (uint32_t)roots[min(tree + path / each, last - 1)] - begin;
            Walk::follow(at, nodes, codes, rows, row);
#pragma unroll
            for (int path = 0; path < side * each; ++path)
                if (side == 1 || tree + path / each < last)
#pragma unroll
                    for (uint32_t place = 0; place < TOGETHER; ++place)
                        if (width % TOGETHER == 0 || first + place < width)
                            sums[path % each][place] += values[at[path] * width + first + place];
        }
    }

    /* Adds the values of one row's leaves in the order of trees; the next ones are on their way meanwhile. */
    static RAMMER_MEMBER void add_leaves(Real &sum, const Real *leaf, uint32_t many) {
        constexpr uint32_t AHEAD = 8, STEP = rows * width;
        const Real *const end = leaf + many * STEP;
        if (many >= AHEAD) {
            Real next[AHEAD];
            take(next, leaf);
#pragma unroll 1
            for (; leaf + 2 * AHEAD * STEP <= end; leaf += AHEAD * STEP) {
                Real now[AHEAD];
#pragma unroll
                for (uint32_t i = 0; i < AHEAD; ++i)
                    now[i] = next[i];
                take(next, leaf + AHEAD * STEP);
                add(sum, now);
            }
            add(sum, next);
            leaf += AHEAD * STEP;
        }
#pragma unroll 1
        for (; leaf < end; leaf += STEP)
            sum += *leaf;
    }
    template <uint32_t count> static RAMMER_MEMBER void take(Real (&some)[count], const Real *leaf) {
#pragma unroll
        for (uint32_t i = 0; i < count; ++i)
            some[i] = leaf[i * (rows * width)];
    }
    template <uint32_t count> static RAMMER_MEMBER void add(Real &sum, const Real (&some)[count]) {
#pragma unroll
        for (uint32_t i = 0; i < count; ++i)
            sum += some[i];
    }

    /* Leaves the values of pairs' leaves where sums are made of them, the first of `many` being number `pair`. */
    template <int side>
    static RAMMER_MEMBER void leaves(Real *leaf, const rammer_forest<Walk> &forest, uint32_t tree, uint32_t pair, uint32_t many,
                                     uint32_t begin, const Word *nodes, const Code *codes) {
        uint32_t at[side], row[side];
#pragma unroll
        for (int path = 0; path < side; ++path) {
            const uint32_t number = min(pair + path * RAMMER_THREADS, many - 1);
            row[path] = number % rows;
            at[path] = (uint32_t)forest.roots[tree + number / rows] - begin;
        }
        Walk::follow(at, nodes, codes, rows, row);
#pragma unroll
        for (int path = 0; path < side; ++path) {
            const uint32_t number = pair + path * RAMMER_THREADS;
            if (number < many)
                for (uint32_t place = 0; place < width; ++place)
                    leaf[(number / rows * width + place) * rows + row[path]] =
                        forest.values[(uint64_t)(begin + at[path]) * width + place];
        }
    }
};

#endif
