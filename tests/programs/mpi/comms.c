/* Groups and communicators (MPI 5.0 chapter 7): making, comparing, translating, naming, freeing; and the separation of their messages. */
#include "check.h"

static int size_of(MPI_Group group) {
    int n;
    MPI_Group_size(group, &n);
    return n;
}

static int compare(MPI_Group a, MPI_Group b) {
    int result;
    MPI_Group_compare(a, b, &result);
    return result;
}

static int sum_over(MPI_Comm comm, int mine) {
    int sum;
    MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, comm);
    return sum;
}

static void groups(void) {
    MPI_Group world, odd, even, both, none, again, reversed;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    int n = size_of(world), mine;
    MPI_Group_rank(world, &mine);
    CHECK(n == size && mine == rank);
    int odds[1][3] = {{1, size - 1, 2}}, evens[1][3] = {{0, size - 1, 2}}, backwards[1][3] = {{size - 1, 0, -1}};
    if (size > 1)
        MPI_Group_range_incl(world, 1, odds, &odd);
    else
        odd = MPI_GROUP_EMPTY;
    MPI_Group_range_excl(world, size > 1, odds, &even);
    MPI_Group_range_incl(world, 1, evens, &again);
    CHECK(compare(even, again) == MPI_IDENT && size_of(odd) == size / 2 && size_of(even) == (size + 1) / 2);
    MPI_Group_free(&again);
    MPI_Group_rank(even, &mine);
    CHECK(mine == (rank % 2 ? MPI_UNDEFINED : rank / 2));
    MPI_Group_union(even, odd, &both);
    CHECK(compare(both, world) == (size > 2 ? MPI_SIMILAR : MPI_IDENT));
    MPI_Group_intersection(even, odd, &none);
    CHECK(size_of(none) == 0 && compare(none, MPI_GROUP_EMPTY) == MPI_IDENT);
    MPI_Group_difference(world, even, &again);
    CHECK(compare(again, odd) == MPI_IDENT);
    MPI_Group_free(&again);
    MPI_Group_range_incl(world, 1, backwards, &reversed);
    CHECK(compare(world, reversed) == (size > 1 ? MPI_SIMILAR : MPI_IDENT));
    CHECK(compare(world, MPI_GROUP_EMPTY) == MPI_UNEQUAL);
    int ranks[2] = {0, size - 1}, theirs[2];
    MPI_Group_translate_ranks(world, 2, ranks, reversed, theirs);
    CHECK(theirs[0] == size - 1 && theirs[1] == 0);
    MPI_Group_translate_ranks(world, 2, (int[]){0, MPI_PROC_NULL}, odd, theirs);
    CHECK(theirs[0] == MPI_UNDEFINED && theirs[1] == MPI_PROC_NULL);
    MPI_Group_incl(world, 1, ranks, &again);
    CHECK(size_of(again) == 1);
    MPI_Group_free(&again);
    MPI_Group_excl(world, 1, ranks, &again);
    CHECK(size_of(again) == size - 1);
    if (again != MPI_GROUP_EMPTY)
        MPI_Group_free(&again);
    MPI_Group_free(&reversed);
    MPI_Group_free(&both);
    MPI_Group_free(&even);
    if (odd != MPI_GROUP_EMPTY)
        MPI_Group_free(&odd);
    if (none != MPI_GROUP_EMPTY)
        MPI_Group_free(&none);
    MPI_Group_free(&world);
    CHECK(world == MPI_GROUP_NULL);
}

static void copies(void) {
    MPI_Comm dup, other, idup;
    MPI_Request request;
    int result;
    MPI_Comm_dup(MPI_COMM_WORLD, &dup);
    MPI_Comm_compare(MPI_COMM_WORLD, dup, &result);
    CHECK(result == MPI_CONGRUENT);
    MPI_Comm_compare(dup, dup, &result);
    CHECK(result == MPI_IDENT);
    MPI_Comm_compare(MPI_COMM_WORLD, MPI_COMM_SELF, &result);
    CHECK(result == (size > 1 ? MPI_UNEQUAL : MPI_CONGRUENT));
    MPI_Comm_dup_with_info(dup, MPI_INFO_NULL, &other);
    MPI_Comm_idup(dup, &idup, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    /* A message in one communicator is not visible in another, whatever the order of the receives. */
    int token = 1, in[3] = {0, 0, 0}, flag;
    MPI_Request requests[3];
    MPI_Irecv(&in[0], 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &requests[0]);
    MPI_Irecv(&in[1], 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, dup, &requests[1]);
    MPI_Irecv(&in[2], 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, idup, &requests[2]);
    token = 3;
    MPI_Send(&token, 1, MPI_INT, right(), 5, idup);
    token = 2;
    MPI_Send(&token, 1, MPI_INT, right(), 5, dup);
    MPI_Barrier(other);
    MPI_Test(&requests[0], &flag, MPI_STATUS_IGNORE);
    CHECK(!flag);
    MPI_Barrier(other);
    token = 1;
    MPI_Send(&token, 1, MPI_INT, right(), 5, MPI_COMM_WORLD);
    MPI_Waitall(3, requests, MPI_STATUSES_IGNORE);
    CHECK(in[0] == 1 && in[1] == 2 && in[2] == 3);
    /* Freed while a message is in flight in it: the message arrives. */
    MPI_Irecv(&in[0], 1, MPI_INT, left(), 6, dup, &requests[0]);
    MPI_Isend(&rank, 1, MPI_INT, right(), 6, dup, &requests[1]);
    MPI_Comm_free(&dup);
    CHECK(dup == MPI_COMM_NULL);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    CHECK(in[0] == left());
    MPI_Comm_free(&other);
    MPI_Comm_free(&idup);
}

static void splitting(void) {
    MPI_Comm half, node, none;
    int mine, members, result;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
    MPI_Comm_rank(half, &mine);
    MPI_Comm_size(half, &members);
    CHECK(members == (size + 1 - rank % 2) / 2 && mine == members - 1 - rank / 2);
    int expected = 0;
    for (int r = rank % 2; r < size; r += 2)
        expected += r;
    CHECK(sum_over(half, rank) == expected);
    MPI_Comm_free(&half);
    /* Equal keys keep the order; a rank without a colour gets no communicator. */
    MPI_Comm_split(MPI_COMM_WORLD, rank ? 7 : MPI_UNDEFINED, 3, &half);
    if (rank) {
        MPI_Comm_rank(half, &mine);
        CHECK(mine == rank - 1 && sum_over(half, 1) == size - 1);
        MPI_Comm_free(&half);
    } else {
        CHECK(half == MPI_COMM_NULL);
    }
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node);
    MPI_Comm_size(node, &members);
    CHECK(members >= 1 && members <= size && sum_over(node, 1) == members);
    MPI_Comm_free(&node);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_UNDEFINED, 0, MPI_INFO_NULL, &none);
    CHECK(none == MPI_COMM_NULL);
#if MPI_VERSION >= 4
    /* Who splits without naming the hardware is told which it was. */
    MPI_Info info;
    char found[MPI_MAX_INFO_VAL] = "";
    int length = sizeof found, is_set;
    MPI_Info_create(&info);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_HW_UNGUIDED, rank, info, &node);
    if (node != MPI_COMM_NULL) {
        MPI_Comm_size(node, &members);
        CHECK(members < size && sum_over(node, 1) == members);
        MPI_Info_get_string(info, "mpi_hw_resource_type", &length, found, &is_set);
        CHECK(is_set && found[0]);
        MPI_Comm_free(&node);
    }
    MPI_Info_free(&info);
#endif
    MPI_Comm_test_inter(MPI_COMM_WORLD, &result);
    CHECK(!result);
}

static void creating(void) {
    MPI_Group world, some;
    MPI_Comm comm;
    int last[1][3] = {{size - 1, size / 2, -1}}, members = size - size / 2, mine, result;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_range_incl(world, 1, last, &some);
    MPI_Comm_create(MPI_COMM_WORLD, some, &comm);
    CHECK((comm != MPI_COMM_NULL) == (rank >= size / 2));
    if (comm != MPI_COMM_NULL) {
        MPI_Comm_rank(comm, &mine);
        CHECK(mine == size - 1 - rank && sum_over(comm, 1) == members);
        MPI_Group back;
        MPI_Comm_group(comm, &back);
        MPI_Group_compare(back, some, &result);
        CHECK(result == MPI_IDENT);
        MPI_Group_free(&back);
        MPI_Comm_free(&comm);
    }
    /* Only its members call; several at a time, distinguished by their tags. */
    if (rank >= size / 2) {
        MPI_Comm_create_group(MPI_COMM_WORLD, some, 11, &comm);
        CHECK(sum_over(comm, rank) == (size - 1 + size / 2) * members / 2);
        MPI_Comm_free(&comm);
    }
    MPI_Group_free(&some);
    MPI_Group_free(&world);
}

/* Many, nested and freed in another order. */
static void many(void) {
    enum { MANY = 100 };
    MPI_Comm comms[MANY];
    for (int i = 0; i < MANY; i++)
        MPI_Comm_split(i % 5 ? comms[i - 1] : MPI_COMM_WORLD, 0, rank, &comms[i]);
    for (int i = 0; i < MANY; i += 7)
        CHECK(sum_over(comms[i], i) == i * size);
    for (int i = 0; i < MANY; i += 2)
        MPI_Comm_free(&comms[i]);
    CHECK(sum_over(comms[51], 1) == size);
    for (int i = 1; i < MANY; i += 2)
        MPI_Comm_free(&comms[i]);
    for (int i = 0; i < 500; i++) {
        MPI_Comm_dup(MPI_COMM_WORLD, &comms[0]);
        MPI_Comm_free(&comms[0]);
    }
}

static void names(void) {
    char name[MPI_MAX_OBJECT_NAME], long_one[MPI_MAX_OBJECT_NAME];
    int length;
    MPI_Comm dup;
    MPI_Comm_get_name(MPI_COMM_WORLD, name, &length);
    CHECK(strcmp(name, "MPI_COMM_WORLD") == 0 && length == 14);
    MPI_Comm_get_name(MPI_COMM_SELF, name, &length);
    CHECK(strcmp(name, "MPI_COMM_SELF") == 0);
    MPI_Comm_dup(MPI_COMM_WORLD, &dup);
    MPI_Comm_get_name(dup, name, &length);
    CHECK(length == 0 && name[0] == 0);
    memset(long_one, 'x', sizeof long_one);
    long_one[sizeof long_one - 1] = 0;
    MPI_Comm_set_name(dup, long_one);
    MPI_Comm_get_name(dup, name, &length);
    CHECK(strcmp(name, long_one) == 0 && length == MPI_MAX_OBJECT_NAME - 1);
    MPI_Comm_free(&dup);
}

/* Messages and collectives of SELF reach no other process. */
static void self(void) {
    int n, mine, got = -1;
    MPI_Request request;
    MPI_Comm_size(MPI_COMM_SELF, &n);
    MPI_Comm_rank(MPI_COMM_SELF, &mine);
    CHECK(n == 1 && mine == 0 && sum_over(MPI_COMM_SELF, rank) == rank);
    MPI_Irecv(&got, 1, MPI_INT, 0, 0, MPI_COMM_SELF, &request);
    MPI_Send(&rank, 1, MPI_INT, 0, 0, MPI_COMM_SELF);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(got == rank);
}

/* A handle can be converted to an integer and back. */
static void integers(void) {
    MPI_Comm dup;
    MPI_Comm_dup(MPI_COMM_WORLD, &dup);
    CHECK(MPI_Comm_fromint(MPI_Comm_toint(dup)) == dup);
    CHECK(MPI_Comm_fromint(MPI_Comm_toint(MPI_COMM_WORLD)) == MPI_COMM_WORLD);
    CHECK(MPI_Type_fromint(MPI_Type_toint(MPI_INT)) == MPI_INT && MPI_Op_fromint(MPI_Op_toint(MPI_SUM)) == MPI_SUM);
    CHECK(MPI_Group_fromint(MPI_Group_toint(MPI_GROUP_EMPTY)) == MPI_GROUP_EMPTY);
    CHECK(MPI_Request_fromint(MPI_Request_toint(MPI_REQUEST_NULL)) == MPI_REQUEST_NULL);
    MPI_Comm_free(&dup);
}

int main(int argc, char **argv) {
    begin(&argc, &argv);
    groups();
    copies();
    splitting();
    creating();
    many();
    names();
    self();
    integers();
    return finish("comms");
}
