/* Distributed arrays, the types of Fortran, what the ABI says about itself, and the machine (MPI 5.0 §5.1.4, §9.1.2, §19.1.9, §20). */
#include "check.h"

static int ours; /* what MPICH's ABI library does not do yet is checked only here */

/* The ints of an array of 2 dimensions that a type holds, by packing an array that counts. */
static int packed(MPI_Datatype type, int total, int *into) {
    int *all = room(total * sizeof *all), bytes, position = 0;
    for (int i = 0; i < total; i++)
        all[i] = i;
    MPI_Type_size(type, &bytes);
    MPI_Type_commit(&type);
    MPI_Pack(all, 1, type, into, bytes, &position, MPI_COMM_SELF);
    free(all);
    return bytes / (int)sizeof(int);
}

/* Whether process (row, column) of a grid holds an element of a dimension. */
static int holds(int kind, int argument, int global, int processes, int place, int element) {
    if (kind == MPI_DISTRIBUTE_NONE)
        return 1;
    int length = argument;
    if (argument == MPI_DISTRIBUTE_DFLT_DARG)
        length = kind == MPI_DISTRIBUTE_BLOCK ? (global + processes - 1) / processes : 1;
    return element / length % processes == place;
}

static void distributed(void) {
    const int kinds[][2] = {{MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_DFLT_DARG}, {MPI_DISTRIBUTE_CYCLIC, MPI_DISTRIBUTE_DFLT_DARG},
        {MPI_DISTRIBUTE_CYCLIC, 3}, {MPI_DISTRIBUTE_BLOCK, 6}};
    const int sizes[2] = {11, 7}, grid[2] = {2, 3};
    for (int first = 0; first < 4; first++)
        for (int second = 0; second < 4; second++)
            for (int process = 0; process < 6; process++)
                for (int fortran = 0; fortran < 2; fortran++) {
                    int distribs[2] = {kinds[first][0], kinds[second][0]}, dargs[2] = {kinds[first][1], kinds[second][1]};
                    int order = fortran ? MPI_ORDER_FORTRAN : MPI_ORDER_C, got[77], expected = 0;
                    MPI_Datatype type;
                    MPI_Aint lb, extent;
                    MPI_Type_create_darray(6, process, 2, sizes, distribs, dargs, grid, order, MPI_INT, &type);
                    MPI_Type_get_extent(type, &lb, &extent);
                    CHECK(lb == 0 && extent == 77 * (MPI_Aint)sizeof(int));
                    int count = packed(type, 77, got), right_so_far = 1;
                    int row = process / 3, column = process % 3;
                    for (int i = 0; i < 77; i++) {
                        int a = fortran ? i % 11 : i / 7, b = fortran ? i / 11 : i % 7;
                        if (holds(distribs[0], dargs[0], 11, 2, row, a) && holds(distribs[1], dargs[1], 7, 3, column, b))
                            right_so_far &= expected < count && got[expected] == i, expected++;
                    }
                    CHECK(right_so_far && count == expected);
                    MPI_Type_free(&type);
                }
    /* Undistributed, and as the arguments that made it. */
    MPI_Datatype type, of;
    const int distribs[2] = {MPI_DISTRIBUTE_NONE, MPI_DISTRIBUTE_BLOCK}, plain[2] = {MPI_DISTRIBUTE_DFLT_DARG, MPI_DISTRIBUTE_DFLT_DARG};
    const int line[2] = {1, 3};
    int got[77], ni, na, nd, combiner, ints[12];
    MPI_Aint none[1];
    MPI_Type_create_darray(3, 1, 2, sizes, distribs, plain, line, MPI_ORDER_C, MPI_INT, &type);
    CHECK(packed(type, 77, got) == 33 && got[0] == 3 && got[2] == 5 && got[3] == 10 && got[32] == 75);
    MPI_Type_get_envelope(type, &ni, &na, &nd, &combiner);
    CHECK(ni == 12 && na == 0 && nd == 1 && combiner == MPI_COMBINER_DARRAY);
    MPI_Type_get_contents(type, 12, 0, 1, ints, none, &of);
    CHECK(ints[0] == 3 && ints[1] == 1 && ints[2] == 2 && ints[3] == 11 && ints[4] == 7 && ints[5] == MPI_DISTRIBUTE_NONE);
    CHECK(ints[10] == 3 && ints[11] == MPI_ORDER_C && of == MPI_INT);
    MPI_Type_free(&type);
    if (ours) {
        MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
        FAILS(MPI_Type_create_darray(6, 0, 2, sizes, distribs, plain, grid, MPI_ORDER_C, MPI_INT, &type), MPI_ERR_ARG);
        FAILS(MPI_Type_create_darray(4, 0, 2, sizes, distribs, plain, line, MPI_ORDER_C, MPI_INT, &type), MPI_ERR_ARG);
        FAILS(MPI_Type_create_darray(3, 3, 2, sizes, distribs, plain, line, MPI_ORDER_C, MPI_INT, &type), MPI_ERR_ARG);
        FAILS(MPI_Type_create_darray(3, 0, 2, sizes, distribs, plain, line, 7, MPI_INT, &type), MPI_ERR_ARG);
        const int small[2] = {MPI_DISTRIBUTE_DFLT_DARG, 2};
        FAILS(MPI_Type_create_darray(3, 0, 2, sizes, distribs, small, line, MPI_ORDER_C, MPI_INT, &type), MPI_ERR_ARG);
        FAILS(MPI_Type_create_darray(3, 0, 0, sizes, distribs, plain, line, MPI_ORDER_C, MPI_INT, &type), MPI_ERR_ARG);
    }
}

static void f90(void) {
    MPI_Datatype type, again;
    int bytes, ni, na, nd, combiner, ints[2];
    MPI_Aint none[1];
    MPI_Datatype no_types[1];
    const int reals[][3] = {{6, 30, 4}, {3, MPI_UNDEFINED, 4}, {7, 37, 8}, {MPI_UNDEFINED, 300, 8}, {15, 307, 8}, {18, 4931, 16}, {30, 10, 16}};
    for (unsigned i = 0; i < sizeof reals / sizeof *reals; i++) {
        MPI_Type_create_f90_real(reals[i][0], reals[i][1], &type);
        MPI_Type_size(type, &bytes);
        CHECK(bytes == reals[i][2]);
        MPI_Type_create_f90_real(reals[i][0], reals[i][1], &again);
        CHECK(type == again);
        MPI_Type_get_envelope(type, &ni, &na, &nd, &combiner);
        CHECK(ni == 2 && na == 0 && nd == 0 && combiner == MPI_COMBINER_F90_REAL);
        MPI_Type_get_contents(type, 2, 0, 0, ints, none, no_types);
        CHECK(ints[0] == reals[i][0] && ints[1] == reals[i][1]);
        MPI_Type_create_f90_complex(reals[i][0], reals[i][1], &type);
        MPI_Type_size(type, &bytes);
        CHECK(bytes == 2 * reals[i][2]);
    }
    const int integers[][2] = {{1, 1}, {3, 2}, {9, 4}, {10, 8}, {18, 8}, {30, 16}};
    for (unsigned i = 0; i < sizeof integers / sizeof *integers; i++) {
        MPI_Type_create_f90_integer(integers[i][0], &type);
        MPI_Type_size(type, &bytes);
        CHECK(bytes == integers[i][1]);
        MPI_Type_get_envelope(type, &ni, &na, &nd, &combiner);
        CHECK(ni == 1 && nd == 0 && combiner == MPI_COMBINER_F90_INTEGER);
    }
    /* They are committed and work in messages and reductions. */
    double mine = rank + 1, sum = 0, got = 0;
    MPI_Type_create_f90_real(15, 200, &type);
    MPI_Allreduce(&mine, &sum, 1, type, MPI_SUM, MPI_COMM_WORLD);
    CHECK(sum == size * (size + 1) / 2.0);
    MPI_Sendrecv(&mine, 1, type, right(), 0, &got, 1, MPI_DOUBLE, left(), 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    CHECK(got == left() + 1);
    /* What a datatype was made of is named as it was. */
    MPI_Datatype two, inner = MPI_DATATYPE_NULL;
    int number;
    MPI_Type_contiguous(2, type, &two);
    MPI_Type_get_contents(two, 1, 0, 1, &number, NULL, &inner);
    CHECK(inner == type);
    MPI_Type_free(&two);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    again = type;
    FAILS(MPI_Type_free(&again), MPI_ERR_TYPE);
    FAILS(MPI_Type_create_f90_real(MPI_UNDEFINED, MPI_UNDEFINED, &type), MPI_ERR_ARG);
    FAILS(MPI_Type_create_f90_real(50, 10, &type), MPI_ERR_ARG);
    FAILS(MPI_Type_create_f90_integer(60, &type), MPI_ERR_ARG);
}

static int is(MPI_Info info, const char *key, const char *expected) {
    char text[64] = "";
    int room = sizeof text, flag = 0;
    MPI_Info_get_string(info, key, &room, text, &flag);
    return flag && strcmp(text, expected) == 0;
}

static void abi(void) {
    MPI_Info info, set;
    MPI_Abi_get_info(&info);
    CHECK(is(info, "mpi_aint_size", "8") && is(info, "mpi_count_size", "8") && is(info, "mpi_offset_size", "8"));
    MPI_Info_free(&info);
    MPI_Abi_get_fortran_info(&info);
    CHECK(info == MPI_INFO_NULL);
    MPI_Info_create(&set);
    MPI_Info_set(set, "mpi_integer_size", "8");
    FAILS(MPI_Abi_set_fortran_info(set), MPI_ERR_ABI);
    MPI_Info_set(set, "mpi_integer_size", "4");
    MPI_Info_set(set, "mpi_real16_supported", "true");
    CHECK(MPI_Abi_set_fortran_info(set) == MPI_SUCCESS);
    FAILS(MPI_Abi_set_fortran_info(set), MPI_ERR_ABI);
    MPI_Info_free(&set);
    MPI_Abi_get_fortran_info(&info);
    CHECK(is(info, "mpi_real16_supported", "true"));
    MPI_Info_free(&info);
    int yes = 1, no = 0, known = -1, odd = -1, got[2] = {7, 7};
    MPI_Abi_get_fortran_booleans(4, &got[0], &got[1], &known);
    CHECK(!known);
    FAILS(MPI_Abi_set_fortran_booleans(4, &odd, &no), MPI_ERR_ABI);
    CHECK(MPI_Abi_set_fortran_booleans(4, &yes, &no) == MPI_SUCCESS);
    FAILS(MPI_Abi_set_fortran_booleans(4, &yes, &no), MPI_ERR_ABI);
    FAILS(MPI_Abi_set_fortran_booleans(3, &yes, &no), MPI_ERR_ARG);
    MPI_Abi_get_fortran_booleans(4, &got[0], &got[1], &known);
    CHECK(known && got[0] == 1 && got[1] == 0);
}

static void machine(void) {
    MPI_Info info, one;
    MPI_Comm comm, node;
    int same;
    MPI_Get_hw_resource_info(&info);
    CHECK(is(info, "hwloc://Machine", "true") && is(info, "mpi_shared_memory", "true"));
    CHECK(is(info, "hwloc://PU", "true") || is(info, "hwloc://PU", "false"));
    /* Whoever is confined to one machine shares it with the members of its node. */
    MPI_Info_create(&one);
    MPI_Info_set(one, "mpi_hw_resource_type", "hwloc://Machine");
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_HW_GUIDED, 0, one, &comm);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Comm_compare(comm, node, &same);
    CHECK(same == MPI_CONGRUENT);
    MPI_Comm_free(&comm);
    MPI_Comm_free(&node);
    MPI_Info_set(one, "mpi_hw_resource_type", "hwloc://PU");
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_HW_GUIDED, 0, one, &comm);
    CHECK((comm != MPI_COMM_NULL) == is(info, "hwloc://PU", "true"));
    if (comm != MPI_COMM_NULL)
        MPI_Comm_free(&comm);
    MPI_Info_set(one, "mpi_hw_resource_type", "a thing");
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_HW_GUIDED, 0, one, &comm);
    CHECK(comm == MPI_COMM_NULL);
    MPI_Info_free(&one);
    MPI_Info_free(&info);
}

int main(int argc, char **argv) {
    begin(&argc, &argv);
    ours = !on_mpich();
    distributed();
    if (ours) {
        f90();
        abi();
        machine();
    }
    return finish("fortran");
}
