/* Datatypes (MPI 5.0 chapter 5): constructors, extents, packing, type contents, and sending data. */
#include "check.h"

#include <stddef.h>

enum { ROOM = 400 };

/* The offsets of the ints of one element of a type, in order. */
typedef struct {
    MPI_Datatype type;
    int count;
    long offsets[64]; /* in ints */
    MPI_Aint lb, extent, true_lb, true_extent;
} Case;

enum { INT = sizeof(int) };

static Case made[24];
static int cases;

static Case *add(MPI_Datatype type, int count, MPI_Aint lb, MPI_Aint extent) {
    Case *c = &made[cases++];
    c->type = type;
    c->count = count;
    c->lb = lb;
    c->extent = extent;
    MPI_Type_commit(&c->type);
    return c;
}

/* Fills in the offsets, and the true bounds after them. */
static void at(Case *c, const long *offsets) {
    long least = offsets[0], most = offsets[0];
    for (int i = 0; i < c->count; i++) {
        c->offsets[i] = offsets[i];
        least = offsets[i] < least ? offsets[i] : least;
        most = offsets[i] > most ? offsets[i] : most;
    }
    c->true_lb = least * INT;
    c->true_extent = (most - least + 1) * INT;
}

#define AT(c, ...) at(c, (const long[]){__VA_ARGS__})

static void make(void) {
    MPI_Datatype type, other;
    MPI_Type_contiguous(3, MPI_INT, &type);
    AT(add(type, 3, 0, 3 * INT), 0, 1, 2);

    MPI_Type_vector(3, 2, 4, MPI_INT, &type);
    AT(add(type, 6, 0, 10 * INT), 0, 1, 4, 5, 8, 9);

    MPI_Type_vector(3, 1, -2, MPI_INT, &type);
    AT(add(type, 3, -4 * INT, 5 * INT), 0, -2, -4);

    MPI_Type_create_hvector(2, 2, 5 * INT, MPI_INT, &type);
    AT(add(type, 4, 0, 7 * INT), 0, 1, 5, 6);

    MPI_Type_indexed(3, (const int[]){2, 0, 1}, (const int[]){4, 9, 1}, MPI_INT, &type);
    AT(add(type, 3, INT, 5 * INT), 4, 5, 1);

    MPI_Type_create_hindexed(2, (const int[]){1, 2}, (const MPI_Aint[]){3 * INT, 0}, MPI_INT, &type);
    AT(add(type, 3, 0, 4 * INT), 3, 0, 1);

    MPI_Type_create_indexed_block(3, 1, (const int[]){5, 2, 0}, MPI_INT, &type);
    AT(add(type, 3, 0, 6 * INT), 5, 2, 0);

    MPI_Type_create_hindexed_block(2, 2, (const MPI_Aint[]){0, 4 * INT}, MPI_INT, &type);
    AT(add(type, 4, 0, 6 * INT), 0, 1, 4, 5);

    MPI_Type_create_struct(2, (const int[]){1, 2}, (const MPI_Aint[]){2 * INT, 4 * INT},
                           (const MPI_Datatype[]){MPI_INT, MPI_UNSIGNED}, &type);
    AT(add(type, 3, 2 * INT, 4 * INT), 2, 4, 5);

    MPI_Type_create_resized(MPI_INT, 0, 3 * INT, &type);
    AT(add(type, 1, 0, 3 * INT), 0);

    /* Nested types: a vector of a type with gaps; a duplicate; a type that begins below its address. */
    MPI_Type_create_resized(MPI_INT, 0, 2 * INT, &other);
    MPI_Type_vector(2, 2, 3, other, &type);
    MPI_Type_free(&other);
    AT(add(type, 4, 0, 10 * INT), 0, 2, 6, 8);

    MPI_Type_dup(made[1].type, &type);
    AT(add(type, 6, 0, 10 * INT), 0, 1, 4, 5, 8, 9);

    MPI_Type_create_resized(made[3].type, -INT, 9 * INT, &type);
    AT(add(type, 4, -INT, 9 * INT), 0, 1, 5, 6);

    MPI_Type_create_struct(2, (const int[]){1, 1}, (const MPI_Aint[]){0, 11 * INT},
                           (const MPI_Datatype[]){made[1].type, made[4].type}, &type);
    AT(add(type, 9, 0, 17 * INT), 0, 1, 4, 5, 8, 9, 15, 16, 12);
}

static void bounds(void) {
    for (int i = 0; i < cases; i++) {
        const Case *c = &made[i];
        int bytes;
        MPI_Count wide, wide_lb, wide_extent;
        MPI_Aint lb, extent;
        MPI_Type_size(c->type, &bytes);
        CHECK(bytes == c->count * INT);
        MPI_Type_size_c(c->type, &wide);
        CHECK(wide == bytes);
        MPI_Type_get_extent(c->type, &lb, &extent);
        CHECK(lb == c->lb && extent == c->extent);
        MPI_Type_get_true_extent(c->type, &lb, &extent);
        CHECK(lb == c->true_lb && extent == c->true_extent);
        MPI_Type_get_extent_c(c->type, &wide_lb, &wide_extent);
        CHECK(wide_lb == c->lb && wide_extent == c->extent);
    }
}

/* Two elements, packed and unpacked, at once and in pieces. */
static void packing(void) {
    for (int i = 0; i < cases; i++) {
        const Case *c = &made[i];
        int memory[ROOM], back[ROOM], expected[128], room_for, position = 0, n = 0, *middle = memory + ROOM / 2;
        char packed[4096];
        fill(memory, ROOM, i);
        for (int e = 0; e < 2; e++)
            for (int k = 0; k < c->count; k++)
                expected[n++] = middle[e * (c->extent / INT) + c->offsets[k]];
        MPI_Pack_size(2, c->type, MPI_COMM_WORLD, &room_for);
        CHECK(room_for >= n * INT);
        MPI_Pack(middle, 2, c->type, packed, sizeof packed, &position, MPI_COMM_WORLD);
        CHECK(position <= room_for);
        int end = position, plain[128];
        position = 0;
        MPI_Unpack(packed, end, &position, plain, n, MPI_INT, MPI_COMM_WORLD);
        CHECK(position == end && memcmp(plain, expected, (size_t)n * INT) == 0);
        for (int k = 0; k < ROOM; k++)
            back[k] = -1;
        position = 0;
        MPI_Unpack(packed, end, &position, back + ROOM / 2, 1, c->type, MPI_COMM_WORLD);
        MPI_Unpack(packed, end, &position, back + ROOM / 2 + c->extent / INT, 1, c->type, MPI_COMM_WORLD);
        int touched = 0, right_ones = 1;
        for (int k = 0; k < ROOM; k++)
            if (back[k] != -1) {
                touched++;
                right_ones &= back[k] == memory[k];
            }
        CHECK(touched == n && right_ones);
    }
}

/* Sent with one type, received with another of the same signature. */
static void travelling(void) {
    enum { ELEMENTS = 700 };
    for (int i = 0; i < cases; i++) {
        const Case *c = &made[i];
        if (i == 8 || i == 13)
            continue; /* not only of ints */
        long stride = c->extent / INT, reach = 40 + ELEMENTS * (stride > 0 ? stride : -stride);
        int n = ELEMENTS * c->count, *out = room((size_t)reach * INT), *in = room((size_t)n * INT), *again = room((size_t)reach * INT);
        int *from = out + 20, *into = again + 20, right_ones = 1;
        MPI_Request request;
        MPI_Status status;
        int count;
        fill(out, reach, rank);
        memset(again, 0, (size_t)reach * INT);
        MPI_Isend(from, ELEMENTS, c->type, right(), 1, MPI_COMM_WORLD, &request);
        MPI_Recv(in, n, MPI_INT, left(), 1, MPI_COMM_WORLD, &status);
        MPI_Get_count(&status, MPI_INT, &count);
        CHECK(count == n);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        for (int e = 0; e < ELEMENTS; e++)
            for (int k = 0; k < c->count; k++)
                right_ones &= in[e * c->count + k] == value(left(), 20 + e * stride + c->offsets[k]);
        CHECK(right_ones);
        /* And back into the type with gaps. */
        MPI_Isend(in, n, MPI_INT, right(), 2, MPI_COMM_WORLD, &request);
        MPI_Recv(into, ELEMENTS, c->type, left(), 2, MPI_COMM_WORLD, &status);
        MPI_Get_count(&status, c->type, &count);
        CHECK(count == ELEMENTS);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        int seed = (rank + 2 * size - 2) % size;
        right_ones = 1;
        for (int e = 0; e < ELEMENTS; e++)
            for (int k = 0; k < c->count; k++) {
                long place = e * stride + c->offsets[k];
                right_ones &= into[place] == value(seed, 20 + place);
            }
        CHECK(right_ones);
        free(out);
        free(in);
        free(again);
    }
}

typedef struct {
    char letter;
    double number;
    short few[3];
    int last;
} Record;

static void records(void) {
    Record out[50], in[50];
    MPI_Datatype plain, record;
    MPI_Aint base, places[4];
    memset(out, 0, sizeof out);
    memset(in, 0, sizeof in);
    MPI_Get_address(&out[0], &base);
    MPI_Get_address(&out[0].letter, &places[0]);
    MPI_Get_address(&out[0].number, &places[1]);
    MPI_Get_address(&out[0].few, &places[2]);
    MPI_Get_address(&out[0].last, &places[3]);
    for (int i = 0; i < 4; i++)
        places[i] = MPI_Aint_diff(places[i], base);
    CHECK(places[3] == offsetof(Record, last) && MPI_Aint_add(base, 8) == base + 8);
    MPI_Type_create_struct(4, (const int[]){1, 1, 3, 1}, places, (const MPI_Datatype[]){MPI_CHAR, MPI_DOUBLE, MPI_SHORT, MPI_INT},
                           &plain);
    MPI_Type_create_resized(plain, 0, sizeof(Record), &record);
    MPI_Type_commit(&record);
    MPI_Type_free(&plain);
    for (int i = 0; i < 50; i++)
        out[i] = (Record){(char)('a' + i % 26), rank + i * 0.5, {(short)i, (short)-i, (short)rank}, i * rank};
    MPI_Request request;
    MPI_Status status;
    int elements;
    MPI_Isend(out, 50, record, right(), 3, MPI_COMM_WORLD, &request);
    MPI_Recv(in, 50, record, left(), 3, MPI_COMM_WORLD, &status);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Get_elements(&status, record, &elements);
    CHECK(elements == 300);
    for (int i = 0; i < 50; i++)
        CHECK(in[i].letter == 'a' + i % 26 && in[i].number == left() + i * 0.5 && in[i].few[1] == -i && in[i].few[2] == left() &&
              in[i].last == i * left());
    /* By addresses, from MPI_BOTTOM. */
    MPI_Datatype absolute;
    double here = rank, there = -1;
    MPI_Aint address;
    MPI_Get_address(&here, &address);
    MPI_Type_create_hindexed(1, (const int[]){1}, &address, MPI_DOUBLE, &absolute);
    MPI_Type_commit(&absolute);
    MPI_Sendrecv(MPI_BOTTOM, 1, absolute, right(), 4, &there, 1, MPI_DOUBLE, left(), 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    CHECK(there == left());
    MPI_Type_free(&absolute);
    MPI_Type_free(&record);
}

static void contents(void) {
    int integers, addresses, types, combiner, values[8];
    MPI_Aint places[4];
    MPI_Datatype of[4];
    MPI_Type_get_envelope(MPI_DOUBLE, &integers, &addresses, &types, &combiner);
    CHECK(combiner == MPI_COMBINER_NAMED && integers == 0 && addresses == 0 && types == 0);
    MPI_Type_get_envelope(made[1].type, &integers, &addresses, &types, &combiner);
    CHECK(combiner == MPI_COMBINER_VECTOR && integers == 3 && addresses == 0 && types == 1);
    MPI_Type_get_contents(made[1].type, 3, 0, 1, values, places, of);
    CHECK(values[0] == 3 && values[1] == 2 && values[2] == 4 && of[0] == MPI_INT);
    MPI_Type_get_envelope(made[8].type, &integers, &addresses, &types, &combiner);
    CHECK(combiner == MPI_COMBINER_STRUCT && integers == 3 && addresses == 2 && types == 2);
    MPI_Type_get_contents(made[8].type, 3, 2, 2, values, places, of);
    CHECK(values[0] == 2 && values[1] == 1 && values[2] == 2 && places[1] == 4 * INT && of[0] == MPI_INT && of[1] == MPI_UNSIGNED);
    MPI_Type_get_envelope(made[9].type, &integers, &addresses, &types, &combiner);
    CHECK(combiner == MPI_COMBINER_RESIZED && integers == 0 && addresses == 2 && types == 1);
    MPI_Type_get_envelope(made[11].type, &integers, &addresses, &types, &combiner);
    CHECK(combiner == MPI_COMBINER_DUP && types == 1);
    /* The types that come back are new handles; those of derived types must be freed. */
    MPI_Type_get_contents(made[11].type, 0, 0, 1, values, places, of);
    int bytes;
    MPI_Type_size(of[0], &bytes);
    CHECK(bytes == 6 * INT);
    MPI_Type_free(&of[0]);
    CHECK(of[0] == MPI_DATATYPE_NULL);
}

static void names_and_sizes(void) {
    static const struct {
        MPI_Datatype type;
        int bytes;
        const char *name;
    } known[] = {
        {MPI_CHAR, 1, "MPI_CHAR"},
        {MPI_SHORT, sizeof(short), "MPI_SHORT"},
        {MPI_INT, sizeof(int), "MPI_INT"},
        {MPI_LONG, sizeof(long), "MPI_LONG"},
        {MPI_LONG_LONG, 8, "MPI_LONG_LONG_INT"},
        {MPI_UNSIGNED_LONG_LONG, 8, "MPI_UNSIGNED_LONG_LONG"},
        {MPI_FLOAT, 4, "MPI_FLOAT"},
        {MPI_DOUBLE, 8, "MPI_DOUBLE"},
        {MPI_LONG_DOUBLE, sizeof(long double), "MPI_LONG_DOUBLE"},
        {MPI_WCHAR, sizeof(wchar_t), "MPI_WCHAR"},
        {MPI_C_BOOL, 1, "MPI_C_BOOL"},
        {MPI_INT8_T, 1, "MPI_INT8_T"},
        {MPI_UINT64_T, 8, "MPI_UINT64_T"},
        {MPI_C_DOUBLE_COMPLEX, 16, "MPI_C_DOUBLE_COMPLEX"},
        {MPI_AINT, sizeof(MPI_Aint), "MPI_AINT"},
        {MPI_COUNT, sizeof(MPI_Count), "MPI_COUNT"},
        {MPI_BYTE, 1, "MPI_BYTE"},
        {MPI_PACKED, 1, "MPI_PACKED"},
        {MPI_DOUBLE_INT, 12, "MPI_DOUBLE_INT"},
        {MPI_2INT, 8, "MPI_2INT"},
        {MPI_SHORT_INT, 6, "MPI_SHORT_INT"},
    };
    char name[MPI_MAX_OBJECT_NAME];
    int bytes, length;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        MPI_Type_size(known[i].type, &bytes);
        CHECK(bytes == known[i].bytes);
        MPI_Type_get_name(known[i].type, name, &length);
        CHECK(strcmp(name, known[i].name) == 0 && length == (int)strlen(name));
    }
    MPI_Aint lb, extent;
    MPI_Type_get_extent(MPI_DOUBLE_INT, &lb, &extent);
    CHECK(lb == 0 && extent == 16);
    /* One type with two names: the first one. */
    MPI_Type_get_name(MPI_C_FLOAT_COMPLEX, name, &length);
    CHECK(strcmp(name, "MPI_C_COMPLEX") == 0);
    MPI_Type_get_name(made[0].type, name, &length);
    CHECK(length == 0 && name[0] == 0);
    MPI_Type_set_name(made[0].type, "three ints");
    MPI_Type_get_name(made[0].type, name, &length);
    CHECK(strcmp(name, "three ints") == 0 && length == 10);
}

/* Sizes that do not fit an int. */
static void large(void) {
    MPI_Datatype type;
    int narrow;
    MPI_Count wide, lb, extent, count = (MPI_Count)3 << 30;
    MPI_Type_contiguous_c(count, MPI_INT, &type);
    MPI_Type_size(type, &narrow);
    CHECK(narrow == MPI_UNDEFINED);
    MPI_Type_size_c(type, &wide);
    CHECK(wide == count * 4);
    MPI_Type_get_extent_c(type, &lb, &extent);
    CHECK(lb == 0 && extent == count * 4);
    MPI_Count integers, addresses, counts, types, values[4];
    int combiner;
    MPI_Type_get_envelope_c(type, &integers, &addresses, &counts, &types, &combiner);
    CHECK(combiner == MPI_COMBINER_CONTIGUOUS && counts == 1 && types == 1);
    MPI_Datatype of;
    int none;
    MPI_Aint nowhere;
    MPI_Type_get_contents_c(type, integers, addresses, counts, types, &none, &nowhere, values, &of);
    CHECK(values[0] == count && of == MPI_INT);
    MPI_Type_free(&type);
}

/* Sizes are known before a datatype is committed. */
static void uncommitted(void) {
    MPI_Datatype type;
    int bytes = 0;
    MPI_Aint external_bytes = 0;
    MPI_Type_contiguous(3, MPI_INT, &type);
    CHECK(MPI_Pack_size(2, type, MPI_COMM_WORLD, &bytes) == MPI_SUCCESS && bytes >= 6 * (int)sizeof(int));
    CHECK(MPI_Pack_external_size("external32", 2, type, &external_bytes) == MPI_SUCCESS && external_bytes == 24);
    MPI_Type_free(&type);
}

static void external(void) {
    int out[3] = {1, 2, 0x01020304}, in[3] = {0, 0, 0};
    char bytes[64];
    MPI_Aint position = 0, needed;
    MPI_Pack_external_size("external32", 3, MPI_INT, &needed);
    CHECK(needed == 12);
    MPI_Pack_external("external32", out, 3, MPI_INT, bytes, sizeof bytes, &position);
    CHECK(position == 12 && memcmp(bytes, "\0\0\0\1\0\0\0\2\1\2\3\4", 12) == 0);
    position = 0;
    MPI_Unpack_external("external32", bytes, 12, &position, in, 3, MPI_INT);
    CHECK(position == 12 && memcmp(in, out, sizeof in) == 0);
}

int main(int argc, char **argv) {
    begin(&argc, &argv);
    make();
    bounds();
    packing();
    travelling();
    records();
    contents();
    names_and_sizes();
    large();
    external();
    uncommitted();
    for (int i = 0; i < cases; i++) {
        MPI_Type_free(&made[i].type);
        CHECK(made[i].type == MPI_DATATYPE_NULL);
    }
    return finish("datatypes");
}
