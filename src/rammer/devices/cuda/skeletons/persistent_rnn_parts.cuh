/* What the skeleton `persistent_rnn_batch` multiplies: parts of vectors, and how their elements are brought. */
#ifndef RAMMER_PERSISTENT_RNN_PARTS_CUH
#define RAMMER_PERSISTENT_RNN_PARTS_CUH

/* Vectors of `length` elements, one for each column, and the weights that they are multiplied with. A slice has `pitch`
 * elements, of which a lane has `elements`; they begin at element `vector_at` of a column's shared memory. A lane's weights of the
 * first `stored` elements lie in shared memory, behind those of `stored_at` elements; the others begin at `weights_at` among its
 * registers. The last `bringers` threads bring the vectors. */
template <int length, int pitch, int elements, int weights_at, int vector_at, int stored, int stored_at, int bringers>
struct rammer_rnn_batch_part {
    enum {
        LENGTH = length,
        PITCH = pitch,
        ELEMENTS = elements,
        WEIGHTS_AT = weights_at,
        VECTOR_AT = vector_at,
        STORED = stored,
        STORED_AT = stored_at,
        BRINGERS = bringers,
        IS_FIRST = weights_at == 0 && stored_at == 0
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
