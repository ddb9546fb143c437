/* What the skeleton `persistent_rnn_batch` multiplies: parts of vectors, and how their elements are brought. */
#ifndef RAMMER_PERSISTENT_RNN_PARTS_CUH
#define RAMMER_PERSISTENT_RNN_PARTS_CUH

/* Vectors of `length` elements, one for each column, and the weights that they are multiplied with. Of `slices`, each has
 * `pitch` elements, of which a lane has `elements`; they begin at element `vector_at` of a column's shared memory. A lane's weights
 * of the first `stored` elements lie in shared memory, from word `stored_at` of those on; the others begin at `weights_at` among
 * its registers. The part is that of the threads from `first` to before `end`, of which the last `bringers` bring the vectors. */
template <
    int length, int slices, int pitch, int elements, int weights_at, int vector_at, int stored, int stored_at, int first, int end,
    int bringers>
struct rammer_rnn_batch_part {
    enum {
        LENGTH = length,
        SLICES = slices,
        PITCH = pitch,
        ELEMENTS = elements,
        WEIGHTS_AT = weights_at,
        VECTOR_AT = vector_at,
        STORED = stored,
        STORED_AT = stored_at,
        FIRST = first,
        END = end,
        THREADS = end - first,
        BRINGERS = bringers,
        FIRST_BRINGER = end - bringers,
        IS_APART = THREADS != RAMMER_THREADS, /* other threads have other parts */
        TEAM = first != 0,                    /* of those */
        IS_FIRST = IS_APART || (weights_at == 0 && stored_at == 0)
    };
};

/* How elements of a part's vectors are brought: look(column, element) asks for WIDTH neighbours, is_there(looked) says whether they
 * came, take(column, element, looked, number) is what one of them is. poll(are_there, again) is to call again() until are_there(). */
template <typename Look, typename IsThere, typename Poll, typename Take> struct rammer_batch_vectors {
    Look look;
    IsThere is_there;
    Poll poll;
    Take take;
};
template <typename Look, typename IsThere, typename Poll, typename Take>
rammer_batch_vectors(Look, IsThere, Poll, Take) -> rammer_batch_vectors<Look, IsThere, Poll, Take>;

/* Where all elements are there. */
struct rammer_no_poll {
    template <typename AreThere, typename Again> RAMMER_MEMBER void operator()(AreThere, Again) const {}
};

#endif
