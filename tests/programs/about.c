// Prints what a library reports about itself before it is initialized, as C and as C++.
#include <mpi.h>
#include <stdio.h>
#include <string.h>

int main(void) {
    int version, subversion, major, minor, length;
    char name[MPI_MAX_LIBRARY_VERSION_STRING];
    if (MPI_Get_version(&version, &subversion) || MPI_Abi_get_version(&major, &minor)) return 1;
    if (MPI_Get_library_version(name, &length)) return 1;
    // rsd's library returns the time before initialization too; others only after it.
    double before = strstr(name, "rsd") ? MPI_Wtime() : 0;
    if (before > 0 && (PMPI_Wtime() < before || MPI_Wtick() <= 0)) return 1;
    if (MPI_Comm_fromint(MPI_Comm_toint(MPI_COMM_WORLD)) != MPI_COMM_WORLD) return 1;
    printf("MPI %d.%d, ABI %d.%d, %d: %s\n", version, subversion, major, minor, length, name);
    return 0;
}
